#!/bin/bash
# Debian's Knot DNS, unmodified: kxdpgun asks knotd, both on AF_XDP, and every query is answered; plain UDP works beside it.
#
#     knot.sh preload|variant|libxdp [LIBRARY]    see common.sh
#
# Knot brings an XDP program of its own, which stays on its interface: that is its choice. Ours must not come into it.
set -u
. "$(dirname "$0")/common.sh"
needs knot knotd knotc
needs knot-dnsutils kxdpgun
needs knot-dnsutils kdig
needs iputils-ping ping
own_namespaces "$@"

guest k ka kb
ip address add 10.77.0.1/24 dev ka
ip -n k address add 10.77.0.2/24 dev kb
ip link set dev lo up
cd $tmp
cat >knot.conf <<-EOF
	server:
	    rundir: $tmp
	    user: root:root
	    listen: 10.77.0.1@53
	    udp-workers: 1
	    tcp-workers: 1
	    background-workers: 1
	xdp:
	    listen: ka@53
	    tcp: on
	log:
	  - target: stderr
	    any: info
	database:
	    storage: $tmp
	zone:
	  - domain: example.com
	    file: $tmp/zone
	    zonefile-load: whole
	    journal-content: none
EOF
cat >zone <<-EOF
	\$TTL 60
	\$ORIGIN example.com.
	@ SOA ns admin 1 60 60 60 60
	@ NS ns
	ns A 10.77.0.1
	www A 192.0.2.1
EOF
echo "www.example.com A" >queries
env "${with_library[@]}" knotd -c knot.conf >knotd.log 2>&1 &
server=$!
trap 'code=$?; cat $tmp/knotd.log; exit $code' EXIT
answers() {
	[ "$(ip netns exec k kdig +short +time=1 @10.77.0.1 www.example.com A)" = 192.0.2.1 ]
}
eventually grep -q "server started" knotd.log || fail "knotd does not start"
answers || fail "knotd does not answer plain UDP"
grep -q "initialized XDP interface ka, UDP/TCP port 53, queues 1, native mode" knotd.log || fail "knotd does not listen by XDP"
[ -n "$(attached ka)" ] || fail "knotd brought no program"
# kxdpgun takes the server's address on the link from the neighbour table.
ip netns exec k ping -q -c 1 10.77.0.1 >/dev/null || fail "no way to the server"

# Once over TCP too; it takes 3 seconds.
protocols=("")
[ "$way" = variant ] || protocols+=(-T)
for protocol in "${protocols[@]}"; do
	ip netns exec k env "${with_library[@]}" kxdpgun -t 1 -Q 1000 $protocol -I kb -i queries 10.77.0.1 >gun.log 2>&1 || {
		cat gun.log
		fail "kxdpgun $protocol"
	}
	cat gun.log
	grep -q "native mode" gun.log || fail "kxdpgun is not in native mode"
	grep -qE "^total replies: .*\(100%\)" gun.log || fail "not every query was answered"
	sent=$(sed -nE 's/^total (queries|SYNs): *([0-9]+) .*/\2/p' gun.log | head -n 1)
	[ "${sent:-0}" -ge 500 ] || fail "too few queries to say anything: ${sent:-none}"
	silent "" gun.log
	answers || fail "knotd does not answer plain UDP any more"
done

kill $server
wait $server
code=$?
[ $code = 0 ] || fail "knotd ended with code $code"
nothing_left
served_by_library xsk_umem__create xsk_umem__delete xsk_socket__create xsk_socket__delete xsk_socket__fd
silent "" knotd.log
for i in ka kb; do
	netns=
	[ $i = ka ] || netns="-n k"
	! ip $netns -d link show dev $i | grep xsk_def_prog || fail "the default program is on $i, which knot did not ask for"
done
