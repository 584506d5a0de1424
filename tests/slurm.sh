#!/usr/bin/env bash
# docs/cluster/slurm.sh and slurm-elastic.sh under a real Slurm of two nodes, both of them this machine: a training that
# gets SIGTERM, as before the end of its time, is queued again, resumes and ends with the weights of an undisturbed
# one; an elastic one also when it loses a node. Its daemons live in namespaces of their own, which end with the script.
# Usage: tests/slurm.sh [BINARY [COMMAND...]]. With a command, such as tests/signals.py BINARY srun, this runs there
# instead of the trainings. Exit code 77: there is no Slurm, or this process may not make namespaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skip() { echo "slurm.sh: skipped: $1" && exit 77; }

if [[ ${1-} != --inside ]]; then
  binary=$(realpath "${1:-build/cpu/ringtape}")
  for program in munged slurmctld slurmd sbatch ip; do
    command -v "$program" >/dev/null ||
      skip "there is no $program (apt-get install slurmctld slurmd slurm-client munge iproute2)"
  done
  own=(unshare --net --uts --mount --pid --fork --kill-child --mount-proc)
  [[ $(id -u) == 0 ]] || skip "only root may run Slurm's daemons for others"
  "${own[@]}" true 2>/dev/null || skip "this process may not make namespaces"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "${own[@]}" "$0" --inside "$binary" "$work" "${@:2}"
  exit
fi

export BINARY=$2 SLURM_CONF=$3/slurm.conf RINGTAPE_THREADS=1
work=$3
fail() { tail -n 20 "$work"/*.log >&2 && echo "slurm.sh: $1" >&2 && exit 1; }
within() { # SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1))
  until "${@:2}" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

hostname node0
printf '127.0.0.1 localhost\n10.87.0.1 node0 node1\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
# Slurm resolves no name while there is only the loopback interface.
ip link add cable0 type veth peer name cable1
ip address add 10.87.0.1/24 dev cable0
for link in lo cable0 cable1; do ip link set "$link" up; done
chmod 755 "$work"
mkdir -m 755 "$work/munge" "$work/state" "$work/spool0" "$work/spool1"
(umask 077 && head -c 1024 /dev/urandom >"$work/munge.key")
cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=node0
SlurmUser=root
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdSpoolDir=$work/spool%n
SlurmdPidFile=$work/slurmd%n.pid
SlurmdLogFile=$work/slurmd%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=5
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
NodeName=node0 NodeHostname=node0 Port=17003 CPUs=8
NodeName=node1 NodeHostname=node0 Port=17004 CPUs=8
PartitionName=all Nodes=node0,node1 Default=YES State=UP
END
munged --force --key-file="$work/munge.key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --seed-file="$work/munge/seed" --log-file="$work/munged.log"
slurmctld
for node in node0 node1; do slurmd -N "$node"; done
nodes_are_idle() { [[ $(sinfo --noheader --format=%T) == idle ]]; }
within 60 nodes_are_idle || fail "expected two idle nodes, got $(sinfo --noheader)"
if (($# > 3)); then "${@:4}" && exit; fi

# NAME SCRIPT...: submits a training of that name; sets $job.
submit() {
  job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=10 --signal=TERM@30 \
    --chdir="$work" --output="$work/$1.log" "${@:2}" train --run "$work/$1" --resume --deterministic --shares 2 \
    --hidden 16 --train-size 256 --test-size 64 --batch-size 32 --epochs 200 --checkpoint-every 1)
}
shows() { scontrol show job "$job" | grep -Eq "$1"; }
ended() { shows 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'; }
waits_again() { shows 'Restarts=1' && shows 'JobState=PENDING'; }
has_checkpoint() { ls -d "$work/$1"/checkpoints/step-* >/dev/null; }

scripts=("docs/cluster/slurm.sh" "docs/cluster/slurm.sh launch" "docs/cluster/slurm-elastic.sh")
submit undisturbed docs/cluster/slurm.sh
within 300 ended || fail "expected an end of the undisturbed training within 300 s"
for i in "${!scripts[@]}"; do
  read -ra script <<<"${scripts[i]}"
  submit "disturbed$i" "${script[@]}"
  within 60 has_checkpoint "disturbed$i" || fail "${scripts[i]}: expected a checkpoint within 60 s"
  scancel --signal=TERM "$job"
  within 60 waits_again || fail "${scripts[i]}: expected the job to be queued again"
  # Without this, two minutes later. In the second in which the job ended its nodes do not take it again.
  scontrol update job "$job" StartTime=now+3
  within 300 ended || fail "${scripts[i]}: expected an end within 300 s"
  shows 'JobState=COMPLETED' || fail "${scripts[i]}: expected COMPLETED, got $(scontrol show job "$job")"
  grep -q 'resume .*step-' "$work/disturbed$i.log" || fail "${scripts[i]}: expected it to resume"
  cmp "$work/undisturbed/exported/model.safetensors" "$work/disturbed$i/exported/model.safetensors" ||
    fail "${scripts[i]}: expected the weights of the undisturbed training"
  echo "slurm.sh: ${scripts[i]}: ended by a signal, queued again, resumed, the same weights"
done

# All processes of node1 end at once: its daemon, that of the job's step, the launcher and its rank.
node1() {
  cat "$work/slurmdnode1.pid"
  grep -lsz '^SLURMD_NODENAME=node1$' /proc/[0-9]*/environ | cut -d / -f 3 | while read -r process; do
    echo "$process"
    parent=$(ps -o ppid= -p "$process" | tr -d ' ')
    if [[ $(ps -o comm= -p "$parent") == slurmstepd* ]]; then echo "$parent"; fi
  done | sort -u
}
elastic=docs/cluster/slurm-elastic.sh
submit lost "$elastic"
within 60 has_checkpoint lost || fail "$elastic: expected a checkpoint within 60 s"
within 60 grep -q 'generation .*: 2 ranks;' "$work/lost.log" || fail "$elastic: expected two ranks"
mapfile -t lost < <(node1)
kill -9 "${lost[@]}" 2>/dev/null || true # with the launcher its rank ends
within 300 ended || fail "$elastic: expected an end within 300 s"
[[ $(scontrol show job "$job") == *JobState=COMPLETED*Restarts=0* ]] ||
  fail "$elastic: expected COMPLETED and no restart, got $(scontrol show job "$job")"
grep -q 'generation .*: 1 rank;' "$work/lost.log" || fail "$elastic: expected one rank to go on"
cmp "$work/undisturbed/exported/model.safetensors" "$work/lost/exported/model.safetensors" ||
  fail "$elastic: expected the weights of the undisturbed training"
echo "slurm.sh: $elastic: without ${#lost[@]} processes of a node the other one went on, the same weights"
