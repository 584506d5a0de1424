#!/usr/bin/env bash
# Elastic training over two and three hosts, which are network namespaces with cables to a switch: on slow cables that
# lose packets, without one cable and with it again, with a switch that passes nothing between two hosts, and without
# the store, from which it is resumed. The weights are always those of an undisturbed training.
# Usage: tests/elastic_hosts.sh [BINARY]. Exit code 77: this process may not make namespaces.
set -euo pipefail
binary=$(realpath "${1:-"$(dirname "${BASH_SOURCE[0]}")/../build/cpu/ringtape"}")
name=elastic_hosts.sh
hosts=("ringtape-$$-0" "ringtape-$$-1" "ringtape-$$-2") switch="ringtape-$$-switch"
# shellcheck source=tests/hosts.sh
. "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"
make_namespaces "${hosts[@]}" "$switch"
permitted ip -n "$switch" link add bridge type bridge
ip -n "$switch" link set bridge up
for i in 0 1 2; do
  permitted ip link add "port$i" netns "$switch" type veth peer name cable netns "${hosts[i]}"
  ip -n "$switch" link set "port$i" master bridge up
  ip -n "${hosts[i]}" address add "10.88.0.$((i + 1))/24" dev cable
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set cable up
done

RINGTAPE_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')
export RINGTAPE_TOKEN RINGTAPE_HEARTBEAT=2 RINGTAPE_THREADS=1
training=(train --data shapes --model mlp --dropout 0.3 --train-size 4000 --test-size 200 --shares 4 --deterministic
  --log-every 1 --transport tcp)

# wait_until SECONDS WHAT COMMAND...
wait_until() {
  local seconds=$1 what=$2 began=$SECONDS
  shift 2
  until "$@"; do
    ((SECONDS - began < seconds)) || fail "expected within $seconds s: $what"
    sleep 0.05
  done
}
says() { grep -Eq "$2" "$work/$1" 2>/dev/null; } # FILE PATTERN
ends() { [[ -e $work/$1.code ]]; }
now() { date +%s.%N; }
since() { awk "BEGIN {printf \"%.1f\", $(now) - $1}"; }
all_four() { says "runs/$run/metrics.jsonl" '"ranks":4' || says "runs/$run/env.json" '"ranks": 4'; }

# start NAME HOST ARGUMENT...: its output is in $work/NAME.log and, once it has ended, its exit code in NAME.code.
start() {
  local name=$1 host=$2
  shift 2
  rm -f "$work/$name."{log,code}
  (
    cd "$work" && code=0
    timeout 120 ip netns exec "${hosts[host]}" "$binary" "$@" >"$name.log" 2>&1 || code=$?
    echo "$code" >"$name.code"
  ) 2>/dev/null &
}
# join NAME HOST RANKS [-- COMMAND...]
join() { start "$1" "$2" launch --join 10.88.0.1:29400 -n "$3" --no-pin "${@:4}"; }
store_process() { # which is a child of timeout
  local pid
  for pid in $(ip netns pids "${hosts[0]}"); do
    [[ $(tr '\0' ' ' <"/proc/$pid/cmdline") == "$binary store "* ]] && echo "$pid"
  done 2>/dev/null
}
cable() { ip -n "$switch" link set "port$1" "$2"; } # HOST up|down

# The training `run`, of so many ranks on the hosts 0, 1 and perhaps 2, four in all, and its store on host 0.
job() {
  local epochs=$1 i=0
  shift
  start store 0 store --port 29400
  wait_until 20 "a store" says store.log 'listens'
  for ranks in "$@"; do
    ((ranks == 0)) || join "host$i" "$i" "$ranks" -- "${training[@]}" --epochs "$epochs" --run "$run"
    i=$((i + 1))
  done
  wait_until 60 "4 ranks" all_four
}
ended_well() {
  for name in "$@"; do
    wait_until 100 "an end of $name" ends "$name"
    [[ $(cat "$work/$name.code") == 0 ]] || fail "$run: $name: expected exit code 0, got $(cat "$work/$name.code")"
  done
  wait
}
same_bytes() { # EPOCHS
  cmp "$work/runs/$run/exported/model.safetensors" "$work/runs/whole$1/exported/model.safetensors" ||
    fail "$run: the weights are not those of an undisturbed training"
}
# Launchers and their ranks have failed, and say why.
ended_with_cause() {
  for name in "$@"; do
    wait_until 30 "an end of $name" ends "$name"
    [[ $(cat "$work/$name.code") != 0 ]] || fail "$run: $name: expected a failure"
    says "$name.log" 'error: .* (has been silent for 2 s: .*|died); it hosted the store at ' ||
      fail "$run: $name: expected the cause"
  done
}

for epochs in 2 20; do
  (cd "$work" && "$binary" "${training[@]}" --epochs "$epochs" --run "whole$epochs" >"whole$epochs.log" 2>&1) ||
    fail "an undisturbed training failed"
done

run=slow
slow() { tc -n "${hosts[$1]}" qdisc add dev cable root netem delay 5ms loss 1%; }
if { command -v tc && slow 0; } >/dev/null 2>"$work/error"; then
  slow 1
  job 2 2 2
  ended_well store host0 host1
  same_bytes 2
  for i in 0 1; do tc -n "${hosts[i]}" qdisc del dev cable root; done
  echo "elastic_hosts.sh: 5 ms and 1 % of the packets lost: the same weights"
else
  echo "elastic_hosts.sh: no slow cables: $(head -n 1 "$work/error")"
fi

# The cable of the last host is pulled out, and comes back.
pulled() {
  local last=$(($# - 1)) began gone on
  job 20 "$@"
  cable "$last" down && began=$(now)
  wait_until 30 "the others go on" says "runs/$run/metrics.jsonl" 'silent for 2 s'
  on=$(since "$began")
  ended_with_cause "host$last" && gone=$(since "$began")
  cable "$last" up
  join back "$last" 2
  wait_until 60 "4 ranks again" says "runs/$run/metrics.jsonl" '"ranks":4,"cause":".* joined'
  ended_well back store host0
  ((last == 1)) || ended_well host1
  same_bytes 20
  echo "elastic_hosts.sh: a cable of $# pulled: the others went on after $on s, its host ended after $gone s"
}
run=pulled2 && pulled 2 2
run=pulled3 && pulled 1 1 2

# Without a way to the store, or without the store itself, all end, and the run is resumed.
for how in cable kill; do
  run=store_$how
  if [[ $how == cable ]]; then job 20 0 2 2; else job 20 1 1 2; fi
  wait_until 60 "a checkpoint" test -e "$work/runs/$run/checkpoints/last"
  began=$(now)
  if [[ $how == cable ]]; then cable 0 down; else kill -9 "$(store_process)"; fi
  ended_with_cause host1 host2
  [[ $how == cable ]] || ended_with_cause host0
  echo "elastic_hosts.sh: no store ($how): all ended after $(since "$began") s"
  cable 0 up
  [[ $how == kill ]] || kill "$(store_process)" 2>/dev/null || true # it may have ended
  wait
  (cd "$work" && "$binary" "${training[@]}" --epochs 20 --run "$run" --resume >"$run.log" 2>&1) ||
    fail "$run: it cannot be resumed"
  says "$run.log" "resume runs/$run/checkpoints" || fail "$run: expected that it is resumed"
  same_bytes 20
done

# Between two of three hosts nothing passes, but both reach the store. One of them is left out, waits,
# and comes back.
between() { # on|off HOST...
  for host in "${@:2}"; do bridge -n "$switch" link set dev "port$host" isolated "$1"; done
}
run=cut
training+=(--step-timeout 3)
if ! command -v bridge >/dev/null || ! between off 1 2 2>"$work/error"; then
  echo "elastic_hosts.sh: no cut between two hosts: $(cat "$work/error" 2>/dev/null || echo "there is no bridge")"
else
  job 20 2 1 1
  between on 1 2 && began=$(now)
  wait_until 60 "the others go on" says "runs/$run/metrics.jsonl" '"ranks":3,"cause":"a rank .* is left out'
  on=$(since "$began")
  for name in host0 host1 host2; do
    wait_until 30 "the reason in the output of $name" says "$name.log" 'is left out: there is no way between it and a'
  done
  waits() { grep -q 'waits until it reaches a rank' "$work/host1.log" "$work/host2.log"; }
  wait_until 30 "the rank that was left out waits" waits
  between off 1 2
  wait_until 60 "4 ranks again" says "runs/$run/metrics.jsonl" '"ranks":4,"cause":".* joined'
  ended_well store host0 host1 host2
  same_bytes 20
  echo "elastic_hosts.sh: a cut between two of three hosts: the others went on after $on s, and it came back"
fi
