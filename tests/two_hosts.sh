#!/usr/bin/env bash
# A job over two hosts, which are network namespaces with a cable between them: it works, and ends on both sides when
# the cable is pulled out. Usage: tests/two_hosts.sh [BINARY]. Exit code 77: this process may not make namespaces.
set -euo pipefail
binary=$(realpath "${1:-"$(dirname "${BASH_SOURCE[0]}")/../build/cpu/ringtape"}")
name=two_hosts.sh
hosts=("ringtape-$$-0" "ringtape-$$-1")
# shellcheck source=tests/hosts.sh
. "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"
make_namespaces "${hosts[@]}"
permitted ip link add cable0 netns "${hosts[0]}" type veth peer name cable1 netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" address add "10.87.0.$((i + 1))/24" dev "cable$i"
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set "cable$i" up
done

RINGTAPE_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')
export RINGTAPE_TOKEN RINGTAPE_HEARTBEAT=2

# COMMAND...: runs it on both hosts, with host=0 and host=1; its exit codes are in $work/code0 and code1 afterwards.
on_both() {
  rm -f "$work"/code*
  for i in 0 1; do
    (
      code=0
      timeout 150 ip netns exec "${hosts[i]}" env "host=$i" "$@" >"$work/host$i.log" 2>&1 || code=$?
      echo "$code" >"$work/code$i"
    ) &
  done
}
collectives=(bench collectives --transport tcp)
check=("${collectives[@]}" --check -b 4 -e 1M -f 16 --iterations 3)
works() {
  wait
  [[ $(cat "$work/code0" "$work/code1" | tr '\n' ' ') == "0 0 " ]] ||
    fail "$1: expected exit codes 0 and 0, got $(cat "$work"/code* | tr '\n' ' ')"
  grep -q 'Out of bounds values : 0 OK' "$work/host0.log" || fail "$1: expected a table without wrong elements"
}
# COMMAND...: on both hosts in a job of a launcher each.
start() {
  # shellcheck disable=SC2016 # for sh
  on_both sh -c 'exec "$0" launch -n 2 --nnodes 2 --node-rank "$host" "$@"' "$binary" --master-addr 10.87.0.1 \
    --master-port 29400 --no-pin --grace 2 -- "$@"
}

start "${check[@]}"
works "two launchers"

# Debian's /etc/hosts: a host's own name leads to 127.0.1.1. Other launchers only set variables.
for i in 0 1; do
  printf '127.0.1.1 node%s\n10.87.0.%s node%s\n' "$i" $((2 - i)) $((1 - i)) >"$work/hosts$i"
done
# shellcheck disable=SC2016 # for sh
on_both unshare --mount sh -c 'mount --bind "$0$host" /etc/hosts && RANK=$host exec "$@"' "$work/hosts" \
  env WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=node0 MASTER_PORT=29401 "$binary" "${check[@]}"
works "rank 0's name is 127.0.1.1 on its host"

for i in 0 1; do ip -n "${hosts[i]}" address add "fd87::$((i + 1))/64" dev "cable$i" nodad; done
# shellcheck disable=SC2016 # for sh
on_both sh -c 'exec "$0" launch -n 1 --nnodes 2 --node-rank "$host" "$@"' "$binary" --master-addr fd87::1 \
  --master-port 29402 --no-pin -- "${check[@]}"
works "IPv6"

start "${collectives[@]}" -b 1M -e 1M --iterations 1000000
for ((i = 0; i < 1200; ++i)); do # until the ranks of both hosts talk to each other, not only to the store
  ip netns exec "${hosts[0]}" ss -Htn state established | grep -v ':29400' | grep -q '10\.87\.0\.2' && break
  sleep 0.1
done
sleep 1
began=$SECONDS
ip -n "${hosts[0]}" link set cable0 down
wait
((SECONDS - began < 20)) || fail "expected an end within 20 s, it took $((SECONDS - began))"
for i in 0 1; do
  [[ $(cat "$work/code$i") != 0 ]] || fail "host $i: expected a failure"
  grep -Eq 'silent for 2 s|lost' "$work/host$i.log" || fail "host $i: expected the cause"
done
echo "two_hosts.sh: a job over two hosts worked; without the cable it ended on both in $((SECONDS - began)) s:"
grep -Eh -m 1 'silent for|lost' "$work"/host*.log
