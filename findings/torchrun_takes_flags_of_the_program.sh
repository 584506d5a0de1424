#!/usr/bin/env bash
# torchrun of PyTorch 2.15.0 (Python 3.11's argparse).
# Guess: all words behind the name of the program are the program's, as with mpirun, srun and env.
# Seen: a flag of the program that begins two of torchrun's own names is refused before anything starts: `--run` is
# "ambiguous", since torchrun knows --run-path and --run_path. Behind a `--`, the program gets it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0
torchrun() { OMP_NUM_THREADS=1 "$folder/venv/bin/torchrun" --nproc-per-node 1 --no-python "$@" 2>&1; }

code=0
refused=$(torchrun echo --run digits) || code=$?
passed=$(torchrun -- echo --run digits)
printf '%s\n' "torchrun echo --run digits: exit code $code, ${refused##*$'\n'}" "torchrun -- echo --run digits: $passed"
[[ $code == 2 && $refused == *"ambiguous option: --run could match --run-path, --run_path"* ]]
[[ $passed == *"--run digits"* ]]
