#!/bin/bash
# An elastic job of ringtape under Slurm: its ranks go on when a node is lost, and others join while it runs. With
# --resume it can be resumed after a requeue.
#
#     export RINGTAPE_TOKEN=$(openssl rand -hex 16)
#     sbatch docs/cluster/slurm-elastic.sh train --run digits --resume --epochs 90
#   more ranks, at any time, where the first job's log says that its store is:
#     sbatch --nodes=1 docs/cluster/slurm-elastic.sh join node7:21234
#
# The store is on the first node of the first job. When that node is lost, Slurm starts the job again, and all go on
# from the newest checkpoint.
#
#SBATCH --job-name=ringtape
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@180
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -u

binary=${BINARY:-ringtape}
RINGTAPE_TOKEN=${RINGTAPE_TOKEN:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')}  # srun passes the environment on
export RINGTAPE_TOKEN

store=
if [ "${1-}" = join ]; then
  where=${2-}
  shift 2
else
  port=$((20000 + SLURM_JOB_ID % 10000))  # below what the kernel gives to outgoing connections
  where=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):$port
  "$binary" store --port "$port" &
  store=$!
fi

# One launcher a node. --wait=0, --kill-on-bad-exit=0 and --no-kill: those of other nodes go on when one has ended.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
  --cpus-per-task=$((SLURM_CPUS_PER_TASK * SLURM_NTASKS_PER_NODE)) --kill-on-bad-exit=0 --wait=0 --no-kill \
  "$binary" launch --join "$where" -n "$SLURM_NTASKS_PER_NODE" --grace 60 -- "$@"
code=$?

if [ -n "$store" ]; then
  # The store ends by itself, with 0, when the training is done, whatever became of single nodes, and all have left,
  # those of other jobs too.
  if [ $code -ne 0 ]; then sleep 1; kill "$store" 2>/dev/null; fi
  wait "$store" && code=0
  # 75: the time was nearly up (--signal), and there is a checkpoint.
  # Of an array this task alone: SLURM_JOB_ID of the last one is the whole array.
  job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
  if [ $code -eq 75 ]; then exec scontrol requeue "${job:-$SLURM_JOB_ID}"; fi
fi
exit $code
