#!/usr/bin/env bash
# Cross-compiles for Arm (aarch64) and executes what it makes by qemu-aarch64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=../.ci/quietly.sh
source .ci/quietly.sh

usage() {
  cat <<'USAGE'
Usage: tests/arm.sh [--short] [--x86 PROGRAM]

Cross-compiles build/arm, and executes tests of kernels, gradients, collectives and files there by
qemu-aarch64, then trainings: one whose ranks are processes that share memory, and one that is begun
by PROGRAM (build/cpu/ringtape, a program for x86-64) and goes on for Arm, and back. Exits with 77
where the compiler, qemu or packages for arm64 are missing.
  --short  some of the tests, as .ci/run
USAGE
}

short=false x86=build/cpu/ringtape
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --short) short=true ;;
    --x86)
      (($# >= 2)) || die "--x86: needs a program" 2
      x86=$2 && shift
      ;;
    *) die "unknown argument '$1'; tests/arm.sh --help lists all" 2 ;;
  esac
  shift
done

skip() { echo "arm.sh: skipped: $1" && exit 77; }
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$program" >/dev/null ||
    skip "there is no $program (apt-get install g++-aarch64-linux-gnu qemu-user)"
done
root=${RINGTAPE_ARM_ROOT:-build/arm-root}
[[ -d $root ]] || tests/arm_root.sh "$root" || skip "there are no libraries for arm64"
root=$(realpath "$root")

# Each with a filter of its tests: what takes minutes of an emulated processor, or executes programs by itself, is not
# among them.
tests=(
  'core_test *'
  'parallel_test *'
  'kernel_test *'
  'numerics_test *'
  'conv_test *OddShapes*:*SixteenBitTypes*:*SwitchesWinogradOff:*OfNoImages*'
  'ops_test *'
  'norm_test *'
  'optimizer_test *'
  'transport_test *_threads:*OpenedForAnother*/shm_processes-*LargerThanAnyBuffer*'
  'parts_test *SumsHave*:*WrongCuts*:*OtherCuts*'
)
$short || tests+=(
  'combine_test *'
  'conv_prepared_test *KeepsNaN:*Refuses*:*HasNoBias*:*OfNoImages*'
  'knn_test *'
  'augment_test *'
  'image_policy_test *'
  'random_view_test *'
  'loss_test *'
  'safetensors_test *'
  'pytorch_file_test *'
  'transport_test -*LargerThanAnyBuffer*:*_threads:*OpenedForAnother*/shm_processes'
)

mkdir -p build
quietly "configuring build/arm" build/arm.log cmake --preset arm
quietly "building build/arm" build/arm.log cmake --build --preset arm \
  --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" --target ringtape_binary "${tests[@]%% *}"
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
arm=(qemu-aarch64 -L "$root")

all=0
for test in "${tests[@]}"; do
  began=$SECONDS name=${test%% *}
  "${arm[@]}" "build/arm/tests/$name" --gtest_brief=1 --gtest_filter="${test#* }" >"$folder/log" 2>&1 ||
    { tail -n 30 "$folder/log" >&2 && die "$name failed"; }
  passed=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$folder/log")
  ((${passed:-0} > 0)) || die "$name: no test passed"
  echo "arm.sh: $name: $passed passed in $((SECONDS - began)) s"
  all=$((all + passed))
done
echo "arm.sh: $all tests passed"

# A training whose ranks are processes.
steps=(train --data shapes --train-size 1000 --batch-size 32 --limit-eval-batches 1 --threads 1)
"${arm[@]}" build/arm/ringtape doctor >"$folder/doctor.txt"
grep -E '^(cpu|isa)' "$folder/doctor.txt"
"${arm[@]}" build/arm/ringtape launch -n 2 --no-pin --exec -- "${arm[@]}" build/arm/ringtape "${steps[@]}" \
  --strategy ddp --transport shm --max-steps 3 --run "$folder/ranks" >"$folder/log"
tail -n 1 "$folder/log"

# A run that is begun for x86-64: the same weights are read here, and it goes on, here and there.
if [[ ! -x $x86 ]]; then
  echo "arm.sh: no run of x86-64 goes on: there is no $x86"
  exit
fi
run=("${steps[@]}" --run "$folder/run" --resume)
"$x86" "${run[@]}" --max-steps 3 >"$folder/log"
"$x86" export "$folder/run" --out "$folder/x86.safetensors" >/dev/null
"${arm[@]}" build/arm/ringtape export "$folder/run" --out "$folder/arm.safetensors" >/dev/null
cmp "$folder"/{x86,arm}.safetensors || die "weights of x86-64 are read differently"
"${arm[@]}" build/arm/ringtape "${run[@]}" --max-steps 6 >"$folder/log"
"$x86" "${run[@]}" --max-steps 9 >"$folder/log"
tail -n 1 "$folder/log"
echo "arm.sh: all passed in $SECONDS s"
