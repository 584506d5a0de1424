#!/usr/bin/env bash
# srun of Slurm 22.05.8 (Debian 12); as root, with debootstrap, in a system and namespaces of its own.
# Guess: srun passes SIGTERM and SIGHUP on to its tasks, as its manual says of signals and as mpirun does, so that a
# task can save its state.
# Seen: "forcing job termination": the tasks get SIGKILL at once and srun ends with 137. SIGUSR1 is passed on, and so is
# SIGTERM from scancel --signal=TERM.
set -euo pipefail
if [[ ${1-} != --inside ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
  debootstrap --variant=minbase --include=slurmctld,slurmd,slurm-client,munge,iproute2 bookworm "$folder/root" \
    >"$folder/log" || { tail "$folder/log" >&2 && exit 1; }
  cp "$0" "$folder/root/script"
  version=$(chroot "$folder/root" dpkg-query --show --showformat '${Version}' slurm-client)
  # shellcheck disable=SC2016 # expanded there
  seen=$(timeout --signal=KILL 120 unshare --net --uts --mount --pid --fork --kill-child bash -c \
    'mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && chroot "$0" bash /script --inside' "$folder/root")
  printf '%s\n' "Slurm $version" "$seen"
  [[ $version == 22.05.8* ]]
  [[ $seen == "SIGTERM to srun: code 137, forcing job termination
SIGHUP to srun: code 137, forcing job termination
SIGUSR1 to srun: code 0, has USR1,ends
scancel --signal=TERM: code 0, has TERM,ends" ]]
  exit
fi

within() { for ((i = 0; i < 300; ++i)); do "$@" >/dev/null 2>&1 && return || sleep 0.1; done; }
mount -t proc proc /proc && mkdir /tmp/spool
hostname node && printf '127.0.0.1 localhost\n10.88.0.1 node\n' >/etc/hosts
ip link add cable type veth peer name other && ip address add 10.88.0.1/24 dev cable
for link in lo cable other; do ip link set "$link" up; done
cat >/etc/slurm/slurm.conf <<'END'
ClusterName=one
SlurmctldHost=node
SlurmUser=root
AuthInfo=socket=/tmp/munge.socket
StateSaveLocation=/tmp
SlurmdSpoolDir=/tmp/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
NodeName=node CPUs=2
PartitionName=all Nodes=node Default=YES State=UP
END
munged --force --socket=/tmp/munge.socket --pid-file=/tmp/munge.pid --seed-file=/tmp/munge.seed \
  --log-file=/tmp/munge.log 2>/dev/null
slurmctld && slurmd
is_idle() { [[ $(sinfo --noheader --format=%T) == idle ]]; }
within is_idle
task='for name in TERM HUP USR1; do trap "echo has $name" $name; done; echo begins
  for i in 1 2 3 4 5 6; do sleep 0.5; done; echo ends'
try() { # NAME COMMAND: what sends the signal to $srun
  srun --job-name=task bash -c "$task" >/out 2>&1 &
  local srun=$! code=0
  within grep -q begins /out
  eval "$2"
  wait "$srun" || code=$?
  echo "$1: code $code, $(grep -oE 'forcing job termination|has [A-Z1]*|ends' /out | paste -sd ,)"
  within is_idle
}
for signal in TERM HUP USR1; do try "SIG$signal to srun" "kill -$signal \$srun"; done
try "scancel --signal=TERM" "scancel --signal=TERM --name=task"
