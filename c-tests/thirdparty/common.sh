# What the scripts here share; sourced by them with their own arguments: WAY [LIBRARY].
#
#     preload LIBSLIPRING    the program gets libslipring by LD_PRELOAD
#     variant LIBXDP         it finds Slipring's libxdp.so.1 by LD_LIBRARY_PATH
#     libxdp                 it runs on the system's libxdp: what the rest should look like
#
# `own_namespaces` starts the script anew in network, mount and process namespaces of its own, where $tmp is: everything
# that it makes is gone when it ends, however it ends. /run is empty there, so nothing of the machine's is seen or left in it.

PATH=$PATH:/usr/sbin:/sbin
way=${1:-}
library=${2:-}

skip() {
	echo "skipped: $1"
	exit 77
}

fail() {
	echo "FAILED: $1"
	exit 1
}

needs() { # PACKAGE PROGRAM...
	local package=$1 program
	shift
	for program; do
		command -v "$program" >/dev/null || skip "$program is not installed (Debian: $package)"
	done
}

own_namespaces() { # "$@"
	if [ "${1-}" != --inside ]; then
		case $way in
		preload | variant) [ -r "$library" ] || fail "no library $library" ;;
		libxdp) ;;
		*) fail "usage: $0 preload|variant|libxdp [LIBRARY]" ;;
		esac
		[ "$(id -u)" = 0 ] || skip "network namespaces and AF_XDP need root"
		needs bpftool bpftool
		local new=(unshare --net --mount --pid --fork --kill-child --mount-proc)
		"${new[@]}" sh -c 'mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys && ip netns add t' 2>/dev/null ||
			skip "no namespaces with mounts of their own can be made here"
		exec "${new[@]}" "$0" --inside "$@"
	fi
	# The first process of its own namespace, or this would be the machine's /run.
	[ $$ = 1 ] || fail "--inside is for this script alone"
	way=$2 library=${3:-}
	mount -t tmpfs tmpfs /run || fail "no file system for /run"
	# The /sys of this network namespace.
	mount -t sysfs sysfs /sys || fail "no /sys"
	tmp=/run/test
	mkdir $tmp
	echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null
	echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null
	programs=() maps=()
	# For env: gives a program the library, and has it write what it binds to, to $tmp/bindings.PID.
	with_library=(LD_DEBUG=bindings LD_DEBUG_OUTPUT=$tmp/bindings)
	case $way in
	preload) with_library+=("LD_PRELOAD=$library") ;;
	variant) with_library+=("LD_LIBRARY_PATH=$(dirname "$library")") ;;
	esac
}

guest() { # NAME IFNAME PEER: a namespace NAME with interface PEER, whose other end here is IFNAME
	ip netns add "$1" || fail "no network namespace"
	ip netns exec "$1" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6' 2>/dev/null
	ip link add name "$2" type veth peer name "$3" netns "$1" 2>/dev/null || skip "no veth interfaces can be made here"
	ip link set dev "$2" up
	ip -n "$1" link set dev "$3" up
}

# It was the library that is tested that served: every xsk_* name that a program or another library took came from it, these
# among them.
served_by_library() { # NAME...
	local wanted
	wanted=$(realpath "$library" 2>/dev/null)
	[ "$way" != libxdp ] || wanted=$(realpath "$(ldconfig -p | sed -n 's/.*libxdp.so.1 .*=> //p' | head -n 1)")
	awk -v wanted="$wanted" -v names="$*" '
		function real(file,    command, path) {
			if (!(file in paths)) {
				command = "realpath " file
				command | getline path
				close(command)
				paths[file] = path
			}
			return paths[file]
		}
		/binding file .* symbol .xsk_/ {
			for (i = 1; i <= NF; i++) {
				if ($i == "file") from = $(i + 1)
				if ($i == "to") to = $(i + 1)
				if ($i == "symbol") name = $(i + 1)
			}
			gsub(/[^a-z0-9_]/, "", name)
			if (real(to) != wanted) {
				print "FAILED: " name " of " from " came from " to ", not from " wanted
				failed = 1
			}
			seen[name]++
		}
		END {
			for (i = split(names, list, " "); i > 0; i--)
				if (!seen[list[i]]) {
					print "FAILED: no program took " list[i]
					failed = 1
				}
			exit failed
		}' $tmp/bindings.* || exit 1
}

# Numbers of the XDP programs on an interface.
attached() { # IFNAME
	ip -d link show dev "$1" | sed -nE 's|.*prog/xdp id ([0-9]+).*|\1|p'
}

# The default program is on the interface. Notes it and its maps for `nothing_left`.
default_program_on() { # IFNAME
	local id shown
	id=$(attached "$1")
	[ -n "$id" ] || fail "no XDP program on $1"
	shown=$(bpftool prog show id "$id") || fail "bpftool does not show program $id"
	case $shown in
	*" name xsk_def_prog "*" gpl"*) ;;
	*) fail "this is on $1, not the default program: $shown" ;;
	esac
	programs+=("$id")
	local list
	list=$(sed -nE 's/.* map_ids ([0-9,]+).*/\1/p' <<<"$shown")
	[ -n "$list" ] || fail "the default program on $1 has no maps: $shown"
	maps+=(${list//,/ })
}

gone() { # KIND NUMBER
	! bpftool "$1" show id "$2" >/dev/null 2>&1
}

eventually() { # COMMAND...: within 20 seconds
	local end=$((SECONDS + 20))
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.02
	done
}

# After the last user: nothing on the interfaces, programs and maps freed, nothing in /run.
nothing_left() { # IFNAME...
	local name id
	for name; do
		id=$(attached "$name")
		[ -z "$id" ] || fail "program $id is still on $name"
	done
	# The kernel frees them a little later.
	for id in "${programs[@]}"; do
		eventually gone prog "$id" || fail "program $id is still in the kernel"
	done
	for id in "${maps[@]}"; do
		eventually gone map "$id" || fail "map $id is still in the kernel"
	done
	# The lock folder stays, and is empty.
	local rest
	rest=$(find /run -path $tmp -prune -o -path /run/netns -prune -o -path /run/mount -prune -o -mindepth 1 ! -path /run/xdp -print)
	[ -z "$rest" ] || fail "left behind: $rest"
}

# Success is silent: no line from the library in what the program wrote, but for those that a program asked for.
silent() { # ASKED-FOR FILE...: a pattern, or nothing
	local asked=$1
	shift
	! cat "$@" | grep "slipring: " | grep -v "${asked:-^$}" || fail "the library wrote a message where nothing was wrong"
}
