#!/bin/bash
# Debian's dpdk-testpmd, unmodified: two net_af_xdp ports on the two ends of one link throw frames at each other.
#
#     testpmd.sh engine LIBSLIPRING [WHAT]                on an engine wire, by preload, as a user without privileges
#     testpmd.sh preload|variant|libxdp [LIBRARY [WHAT]]  over veth; see common.sh
#
#     WHAT  io      what a port receives goes out at the other (the default): all that is sent arrives
#           copy    io with the driver's force_copy, and without busy polling
#           txonly  both only send: what finds no room at the receiver is counted there
#
# Every frame that one port sends the other must count, but for what is under way in the end.
# The wire must be one that drops (the default): testpmd polls both ports from one thread, and a driver that waits in its
# send for the other end to make room would wait for itself.
set -u
. "$(dirname "$0")/common.sh"
seconds=${TESTPMD_SECONDS:-1.5}

needs dpdk dpdk-testpmd
ls /usr/lib/*/dpdk/pmds-*/librte_net_af_xdp.so* >/dev/null 2>&1 || skip "DPDK's af_xdp driver is not installed (Debian: librte-net-af-xdp23)"

if [ "$way" = engine ]; then
	what=${3:-io}
	# Names that no interface has.
	a=tpmda b=tpmdb
	run=(env "LD_PRELOAD=$library" "SLIPRING_DEVICES=$a=wire:testpmd$$/a $b=wire:testpmd$$/b")
	if [ "$(id -u)" = 0 ]; then
		run=(setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "${run[@]}")
		setpriv --reuid 65534 --clear-groups --bounding-set=-all test -r "$library" ||
			skip "a user without privileges cannot read $library"
	fi
	tmp=$(mktemp -d) || exit 2
	testpmd=
	trap '[ -z "$testpmd" ] || kill -KILL $testpmd 2>/dev/null; rm -rf "$tmp"' EXIT
else
	own_namespaces "$@"
	what=${4:-io}
	a=va b=vb
	ip link add name $a type veth peer name $b || skip "no veth interfaces can be made here"
	ip link set dev $a up
	ip link set dev $b up
	# Where DPDK keeps its own things.
	run=(env RUNTIME_DIRECTORY=$tmp "${with_library[@]}")
fi
options='' forward=(--forward-mode=io --tx-first)
case $what in
io) ;;
copy) options=,force_copy=1,busy_budget=0 ;;
txonly) forward=(--forward-mode=txonly --auto-start) ;;
*) fail "nothing is called $what" ;;
esac
if [ "$(nproc)" -gt 1 ]; then
	cores=0,1
else
	cores='(0,1)@0'
fi

log=$tmp/testpmd.log
begun() { grep -q "packets/burst=" "$log"; }
mkfifo "$tmp/stdin" || exit 2
exec 3<>"$tmp/stdin"
# By lines, so that the log tells when it has begun.
"${run[@]}" stdbuf -oL dpdk-testpmd --no-huge -m 128 --no-pci --no-shconf --no-telemetry --lcores "$cores" \
	--vdev "net_af_xdp0,iface=$a$options" --vdev "net_af_xdp1,iface=$b$options" \
	-- "${forward[@]}" --total-num-mbufs=16384 --no-mlockall <&3 >"$log" 2>&1 3>&- &
testpmd=$!
if ! eventually begun; then
	cat "$log"
	fail "testpmd does not begin"
fi
sleep "$seconds"
if [ "$way" != engine ]; then
	default_program_on $a
	default_program_on $b
fi
# Enter ends it.
echo >&3
wait $testpmd
code=$?
testpmd=
cat "$log"
[ $code = 0 ] || fail "testpmd ended with code $code"

# The "Forward statistics" of the two ports.
awk -v what="$what" '
	function field(name,    i) {
		for (i = 1; i < NF; i++)
			if ($i == name)
				return $(i + 1) + 0
		return 0
	}
	function fail(reason) {
		print "FAILED: " reason
		exit 1
	}
	/Forward statistics for port/ { port = $(NF - 1); seen++ }
	/Accumulated/ { port = "all" }
	/RX-packets:/ && /RX-dropped:/ { rx[port] = field("RX-packets:"); lost[port] = field("RX-dropped:") }
	/TX-packets:/ && /TX-dropped:/ { tx[port] = field("TX-packets:"); unsent[port] = field("TX-dropped:") }
	END {
		for (port = 0; port < 2; port++)
			printf "port %d: sent %d, not sent %d, received %d, lost %d\n", port, tx[port], unsent[port], rx[port], lost[port]
		if (seen != 2 || tx[0] < 10000 || tx[1] < 10000)
			fail("each port must send 10000 frames and more")
		for (port = 0; port < 2; port++) {
			came = rx[port] + lost[port]
			sent = tx[1 - port]
			if (what == "txonly" ? rx[port] : lost[port] + unsent[port])
				fail(what == "txonly" ? "nobody asked port " port " for frames" : "frames were lost at port " port)
			if (came > sent)
				fail("port " port " received more than the other sent")
			# What is under way: in txonly also what fills the ring of the receiver.
			if (sent - came > (what == "txonly" ? 4096 : 1024))
				fail("more frames for port " port " are missing than can be under way")
		}
	}' "$log" || exit 1

silent "" "$log"
if [ "$way" != engine ]; then
	nothing_left $a $b
	served_by_library xsk_umem__create xsk_umem__delete xsk_socket__create xsk_socket__delete xsk_socket__fd
fi
