#!/bin/sh
# Debian's dpdk-testpmd, unmodified: two net_af_xdp ports on the two ends of one wire throw frames at each other.
#
#     testpmd.sh engine LIBSLIPRING    on an engine wire, as a user without privileges
#     testpmd.sh direct LIBSLIPRING    over veth (run it under veth-run), libslipring preloaded
#     testpmd.sh libxdp                over veth, without libslipring: what it should look like
#
# Every frame that one port sends the other must count, but for what is under way in the end.
# The wire must be one that drops (the default): testpmd polls both ports from one thread, and a driver that waits in its
# send for the other end to make room would wait for itself.
set -u

provider=${1:?engine, direct or libxdp}
library=${2:-}
seconds=${TESTPMD_SECONDS:-5}

skip() {
    echo "skipped: $1"
    exit 77
}

command -v dpdk-testpmd >/dev/null || skip "dpdk-testpmd is not installed (Debian: dpdk)"
ls /usr/lib/*/dpdk/pmds-*/librte_net_af_xdp.so* >/dev/null 2>&1 || skip "DPDK's af_xdp driver is not installed (Debian: librte-net-af-xdp23)"

log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
run=""
a=va b=vb
if [ "$provider" != libxdp ]; then
    run="env LD_PRELOAD=$library"
fi
if [ "$provider" = engine ]; then
    # Names that no interface has.
    a=tpmda b=tpmdb
    run="env LD_PRELOAD=$library SLIPRING_DEVICES=$a=wire:testpmd$$/a\ $b=wire:testpmd$$/b"
    if [ "$(id -u)" = 0 ]; then
        run="setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all $run"
        setpriv --reuid 65534 --clear-groups --bounding-set=-all test -r "$library" ||
            skip "a user without privileges cannot read $library"
    fi
fi
if [ "$(nproc)" -gt 1 ]; then
    cores=0,1
else
    cores='(0,1)@0'
fi

# With --stats-period it does not end at the end of its standard input.
eval "timeout -k 5 -s INT $seconds $run dpdk-testpmd --no-huge -m 128 --no-pci --no-shconf --no-telemetry --lcores '$cores' \
    --vdev net_af_xdp0,iface=$a --vdev net_af_xdp1,iface=$b \
    -- --forward-mode=io --total-num-mbufs=16384 --no-mlockall --tx-first --stats-period 1" >"$log" 2>&1
code=$?
cat "$log"
if [ $code != 124 ] && [ $code != 0 ]; then
    echo "FAILED: testpmd ended with code $code"
    exit 1
fi

# The "Forward statistics" of the two ports, then the sums.
awk '
    function field(name,    i) {
        for (i = 1; i < NF; i++)
            if ($i == name)
                return $(i + 1) + 0
        return 0
    }
    /Forward statistics for port/ { port = $(NF - 1); seen++ }
    /Accumulated/ { port = "all" }
    /RX-packets:/ && /RX-dropped:/ { rx[port] = field("RX-packets:") }
    /TX-packets:/ && /TX-dropped:/ { tx[port] = field("TX-packets:") }
    END {
        printf "port 0: sent %d, received %d; port 1: sent %d, received %d\n", tx[0], rx[0], tx[1], rx[1]
        if (seen != 2 || rx[0] < 10000 || rx[1] < 10000) {
            print "FAILED: each port must receive 10000 frames and more"
            exit 1
        }
        if (rx[0] > tx[1] || rx[1] > tx[0]) {
            print "FAILED: a port received more than the other sent"
            exit 1
        }
        if (tx[0] - rx[1] > 1024 || tx[1] - rx[0] > 1024) {
            print "FAILED: more frames are missing than can be under way"
            exit 1
        }
    }' "$log"
