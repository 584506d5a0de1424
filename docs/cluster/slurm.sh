#!/bin/bash
# A job of ringtape under Slurm. What follows the script's name is a ringtape command line; with --resume it can be
# resumed after a requeue.
#
#   srun starts every rank:
#     sbatch docs/cluster/slurm.sh train --run digits --resume --epochs 90
#   one `ringtape launch` a node starts its ranks:
#     sbatch docs/cluster/slurm.sh launch train --run digits --resume --epochs 90
#
#SBATCH --job-name=ringtape
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -u

binary=${BINARY:-ringtape}
RINGTAPE_TOKEN=${RINGTAPE_TOKEN:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')}  # srun passes the environment on
export RINGTAPE_TOKEN

if [ "${1-}" = launch ]; then
  shift
  host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  port=$((20000 + SLURM_JOB_ID % 10000))  # below what the kernel gives to outgoing connections
  # SLURM_NODEID is another one in each task: sh -c reads it there.
  srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --cpus-per-task=$((SLURM_CPUS_PER_TASK * SLURM_NTASKS_PER_NODE)) --wait=60 \
    sh -c 'exec "$0" launch --node-rank "$SLURM_NODEID" "$@"' \
    "$binary" -n "$SLURM_NTASKS_PER_NODE" --nnodes "$SLURM_JOB_NUM_NODES" --master-addr "$host" \
    --master-port "$port" --grace 60 -- "$@"
else
  # --wait: ranks that go on when one has ended have a minute to write a checkpoint, and not only KillWait's seconds as
  # with --kill-on-bad-exit.
  srun --ntasks="$SLURM_NTASKS" --ntasks-per-node="$SLURM_NTASKS_PER_NODE" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    --kill-on-bad-exit=0 --wait=60 "$binary" "$@"
fi
code=$?

# 75: the time was nearly up (--signal), and there is a checkpoint.
# Of an array this task alone: SLURM_JOB_ID of the last one is the whole array.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
if [ $code -eq 75 ]; then exec scontrol requeue "${job:-$SLURM_JOB_ID}"; fi
exit $code
