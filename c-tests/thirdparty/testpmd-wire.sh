#!/bin/bash
# Debian's dpdk-testpmd, unmodified, in processes of its own on the ends of engine wires: net_af_xdp by preload, as a user
# without privileges. Each is told to stop in the order in which the frames travel, so that in the end none is under way and
# every frame that was sent must be found among those that were received or counted as dropped.
#
#     testpmd-wire.sh LIBSLIPRING SLIPRING [WHAT]
#
#     WHAT  txonly   one process sends, another receives (the default)
#           wait     the same over a wire that holds the sender back: none is lost
#           io       two processes throw what one of them began with to and fro
#           forward  one sends to a second, which forwards to a third over another wire
#           killed   each end in turn is killed and started again, and the other goes on
set -u
. "$(dirname "$0")/common.sh"
library=${1:-} slipring=${2:-} what=${3:-txonly}
seconds=${TESTPMD_SECONDS:-1}

[ -r "$library" ] && [ -x "$slipring" ] || fail "usage: $0 LIBSLIPRING SLIPRING [WHAT]"
needs dpdk dpdk-testpmd
ls /usr/lib/*/dpdk/pmds-*/librte_net_af_xdp.so* >/dev/null 2>&1 || skip "DPDK's af_xdp driver is not installed (Debian: librte-net-af-xdp23)"

tmp=$(mktemp -d) || exit 2
declare -A pids
end_all() {
	for pid in "${pids[@]}"; do
		kill -KILL "$pid" 2>/dev/null
	done
	rm -rf "$tmp"
}
trap end_all EXIT
user=()
if [ "$(id -u)" = 0 ]; then
	user=(setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all)
	chown 65534 "$tmp"
	"${user[@]}" test -r "$library" -a -x "$slipring" -a -w "$tmp" || skip "a user without privileges cannot reach $library, $slipring and $tmp"
fi
user+=(env "XDG_RUNTIME_DIR=$tmp")
last=$(($(nproc) > 1 ? 1 : 0))

has() { # TEXT LOG
	grep -q -- "$1" "$2"
}

# A testpmd NAME on processor CORE that forwards in MODE and has a port on each of the ends, as in x/a or x/a?full=wait.
begin() { # NAME CORE MODE END...
	local name=$1 core=$2 mode=$3 devices=() ports=() n=0
	shift 3
	for end; do
		devices+=("port$n=wire:$end")
		ports+=(--vdev "net_af_xdp$n,iface=port$n")
		n=$((n + 1))
	done
	rm -f "$tmp/$name.in"
	: >"$tmp/$name.log"
	mkfifo "$tmp/$name.in" || exit 2
	exec {keep}<>"$tmp/$name.in"
	inputs[$name]=$keep
	"${user[@]}" "LD_PRELOAD=$library" "SLIPRING_DEVICES=${devices[*]}" \
		stdbuf -oL dpdk-testpmd --no-huge -m 64 --no-pci --no-shconf --no-telemetry --lcores "0@$core,1@$core" "${ports[@]}" \
		-- --interactive --forward-mode="$mode" --total-num-mbufs=8192 --no-mlockall <&"$keep" >>"$tmp/$name.log" 2>&1 {keep}<&- &
	pids[$name]=$!
	eventually has "testpmd>" "$tmp/$name.log" || show_and_fail "testpmd does not begin" "$name"
}
declare -A inputs

show_and_fail() { # REASON NAME...
	local reason=$1
	shift
	for name; do
		echo "-- $name"
		cat "$tmp/$name.log"
	done
	fail "$reason"
}

tell() { # NAME COMMAND
	echo "$2" >&"${inputs[$1]}"
}

# Starts forwarding; more words are those of testpmd's `start`.
start() { # NAME [WORDS]
	tell "$1" "start ${2:-}"
	eventually has "packets/burst=" "$tmp/$1.log" || show_and_fail "testpmd does not start" "$1"
}

stop() { # NAME
	tell "$1" stop
	eventually has "^Done." "$tmp/$1.log" || show_and_fail "testpmd does not stop" "$1"
}

# Ends in order.
quit() { # NAME...
	for name; do
		tell "$name" quit
		wait "${pids[$name]}" || show_and_fail "testpmd ended with code $?" "$name"
		unset "pids[$name]"
		exec {inputs[$name]}>&-
	done
}

killed() { # NAME
	kill -KILL "${pids[$1]}"
	wait "${pids[$1]}" 2>/dev/null
	unset "pids[$1]"
	exec {inputs[$1]}>&-
}

# What testpmd counted in the end, when it stopped: frames received, missed by the receiving socket, sent, not sent.
count() { # NAME PORT rx|missed|tx|unsent
	awk -v port="$2" -v what="$3" '
		function field(name,    i) {
			for (i = 1; i < NF; i++)
				if ($i == name)
					return $(i + 1)
		}
		/Forward statistics for port/ { here = $(NF - 1) == port }
		/Accumulated/ { here = 0 }
		here && /RX-packets:/ { n["rx"] = field("RX-packets:"); n["missed"] = field("RX-dropped:") }
		here && /TX-packets:/ { n["tx"] = field("TX-packets:"); n["unsent"] = field("TX-dropped:") }
		END { print n[what] == "" ? -1000000000 : n[what] }' "$tmp/$1.log"
}

# Frames that end END (as in x/a) took and lost.
dropped() { # END
	"${user[@]}" "$slipring" wires --json >"$tmp/wires" || fail "slipring wires found none"
	sed -nE "s|.*\"wire\":\"${1%/*}\".*\"end\":\"${1#*/}\"[^}]*\"dropped\":([0-9]+).*|\1|p" "$tmp/wires"
}

equal() { # WHAT NUMBER NUMBER
	[ "$2" -eq "$3" ] || {
		cat "$tmp"/*.log "$tmp/wires" 2>/dev/null
		fail "$1: $2 and $3"
	}
}

plenty() { # WHAT NUMBER
	[ "$2" -ge 10000 ] || show_and_fail "$1: only $2 frames" "${!pids[@]}"
}

# Everything that was sent from FROM over END arrived at TO's port, or was counted.
conserved() { # FROM PORT END TO PORT
	local sent lost got missed
	sent=$(count "$1" "$2" tx) lost=$(dropped "$3") got=$(count "$4" "$5" rx) missed=$(count "$4" "$5" missed)
	echo "$1 to $4 over ${3%/*}: sent $sent, dropped $lost, received $got, missed $missed"
	# On a busy machine testpmd may be told to stop before it has taken what came last: a burst of it.
	[ $((sent - lost - got - missed)) -le 32 ] || equal "frames sent by $1, and received by $4 or dropped" "$sent" $((lost + got + missed))
	[ $((sent - lost - got - missed)) -ge 0 ] || show_and_fail "$4 received more than $1 sent" "$1" "$4"
	plenty "received by $4" "$got"
}

# Time for the next in line to take what is under way.
settle() { sleep 0.5; }

case $what in
txonly | wait)
	options=
	[ "$what" = txonly ] || options='?full=wait'
	begin receiver $last rxonly "x/b$options"
	begin sender 0 txonly "x/a$options"
	start receiver
	start sender
	sleep "$seconds"
	stop sender
	settle
	stop receiver
	conserved sender 0 x/a receiver 0
	[ "$what" = txonly ] || equal "lost over a wire that waits" "$(dropped x/a)" 0
	quit sender receiver
	;;
io)
	begin first 0 io x/a
	begin second $last io x/b
	start second
	start first tx_first
	sleep "$seconds"
	stop first
	settle
	stop second
	# What the one sent last is in the ring of the other, which has stopped.
	for pair in "first second a" "second first b"; do
		read -r from to end <<<"$pair"
		under_way=$(($(count $from 0 tx) - $(count $to 0 rx) - $(count $to 0 missed) - $(dropped x/$end)))
		echo "$from to $to: sent $(count $from 0 tx), received $(count $to 0 rx), under way $under_way"
		[ $under_way -ge 0 ] && [ $under_way -le 32 ] || show_and_fail "$under_way frames under way of 32" first second
		plenty "received by $to" "$(count $to 0 rx)"
		equal "not sent by $from" "$(count $from 0 unsent)" 0
	done
	quit first second
	;;
forward)
	begin receiver $last rxonly y/b
	begin forwarder $last io x/b y/a
	begin sender 0 txonly x/a
	start receiver
	start forwarder
	start sender
	sleep "$seconds"
	for name in sender forwarder receiver; do
		stop $name
		settle
	done
	conserved sender 0 x/a forwarder 0
	equal "received and forwarded" "$(count forwarder 0 rx)" $(($(count forwarder 1 tx) + $(count forwarder 1 unsent)))
	conserved forwarder 1 y/a receiver 0
	quit sender forwarder receiver
	;;
killed)
	begin receiver $last rxonly x/b
	begin sender 0 txonly x/a
	start sender
	start receiver
	sleep 0.3
	killed receiver
	begin receiver $last rxonly x/b
	start receiver
	sleep "$seconds"
	killed sender
	begin sender 0 txonly x/a
	stop receiver
	plenty "received by the receiver's second process" "$(count receiver 0 rx)"
	# Its log is read from here on.
	: >"$tmp/receiver.log"
	start receiver
	start sender
	sleep "$seconds"
	stop sender
	settle
	stop receiver
	conserved sender 0 x/a receiver 0
	quit sender receiver
	;;
*) fail "nothing is called $what" ;;
esac

left=$(ls -A "$tmp/slipring")
[ -z "$left" ] || fail "left in the directory of wires: $left"
silent "" "$tmp"/*.log
