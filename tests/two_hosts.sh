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

# Starts the job's launcher on both hosts; its exit codes are in $work/code0 and code1 afterwards.
start() {
  rm -f "$work"/code*
  for i in 0 1; do
    (
      code=0
      timeout 150 ip netns exec "${hosts[i]}" "$binary" launch -n 2 --nnodes 2 --node-rank "$i" \
        --master-addr 10.87.0.1 --master-port 29400 --no-pin --grace 2 -- bench collectives --transport tcp "$@" \
        >"$work/host$i.log" 2>&1 || code=$?
      echo "$code" >"$work/code$i"
    ) &
  done
}

start --check -b 4 -e 1M -f 16 --iterations 3
wait
[[ $(cat "$work/code0" "$work/code1" | tr '\n' ' ') == "0 0 " ]] ||
  fail "expected exit codes 0 and 0, got $(cat "$work"/code* | tr '\n' ' ')"
grep -q 'Out of bounds values : 0 OK' "$work/host0.log" || fail "expected a table without wrong elements"

start -b 1M -e 1M --iterations 1000000
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
