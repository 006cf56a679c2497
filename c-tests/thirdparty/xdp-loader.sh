#!/bin/bash
# What xdp-loader, bpftool and ip say of the default program, and what xdp-loader does to it: of libslipring's as of libxdp's.
#
#     xdp-loader.sh preload|variant|libxdp LIBRARY SENDRECV    see common.sh; SENDRECV is linked with libxdp
set -u
. "$(dirname "$0")/common.sh"
needs xdp-tools xdp-loader
own_namespaces "$@"
sendrecv=${4:?a program is missing}
cd $tmp

loaded() { [ -n "$(attached va)" ]; }
unloaded() { ! loaded; }

# Numbers, tags and the widths of columns aside, these differ in nothing.
look() {
	{
		xdp-loader status va
		bpftool net show dev va
		bpftool prog show id "$(attached va)" | head -n 1
		ip -d link show dev va | grep xdp
	} 2>&1 | sed -E 's/\b[0-9a-f]{16}\b/TAG/g; s/\b[0-9]+\b/N/g; s/ +/ /g'
}

round() { # NAME ENV...: writes NAME.native, NAME.generic, NAME.unload
	local name=$1 mode reader
	shift
	for mode in native generic; do
		# New each time: the kernel gives a queue free a little after its socket is gone.
		ip link add name va type veth peer name vb || skip "no veth interfaces can be made here"
		ip link set dev va up
		ip link set dev vb up
		local flag=()
		[ $mode = native ] || flag=(-S)
		env "$@" "$sendrecv" -R -i va -t 20 "${flag[@]}" >reader.log 2>&1 &
		reader=$!
		eventually loaded || { cat reader.log; fail "no program on va ($name, $mode)"; }
		[ "$name" != tested ] || default_program_on va
		look >"$name.$mode"
		if [ $mode = generic ]; then
			# Pulled from under its user, who must not mind.
			xdp-loader unload va --all >"$name.unload" 2>&1
			echo "code $?" >>"$name.unload"
			unloaded || fail "xdp-loader unload did not unload it ($name)"
		fi
		kill $reader
		wait $reader || { cat reader.log; fail "the program that received failed ($name, $mode)"; }
		[ "$name" != tested ] || silent "" reader.log
		nothing_left va vb
		ip link delete dev va
	done
}

round control A=
round tested "${with_library[@]}"
cat tested.native tested.generic tested.unload
for part in native generic unload; do
	diff control.$part tested.$part || fail "$part: not what is said of libxdp's program"
done
grep -q "^va xsk_def_prog native N TAG" tested.native || fail "xdp-loader does not show the default program"
served_by_library xsk_umem__create xsk_umem__delete xsk_socket__create xsk_socket__delete xsk_socket__fd
