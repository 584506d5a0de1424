#!/usr/bin/env bash
# Fuzzes the readers of external data with ASan and UBSan.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: tests/fuzz/run.sh [SECONDS] [TARGET...]

Builds the targets in build/fuzz with clang++ and libFuzzer, beside the library that the tests in
build/cpu share, and runs each of TARGET, or all, for so many seconds: on generated seeds and files
of other programs (tests/fixtures), on what earlier runs found worth keeping (build/fuzz/corpus) and
on what was once a finding (tests/fuzz/found). SECONDS 0 (the default) is the short form of the
tests: the same inputs and a fixed number of mutations of them. An input that is a finding is left
in build/fuzz; build/fuzz/bin/TARGET_fuzz FILE runs it again.
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=../../.ci/quietly.sh
source .ci/quietly.sh

if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage && exit; fi
seconds=0
if [[ ${1:-} =~ ^[0-9]+$ ]]; then seconds=$1 && shift; fi
targets=("$@")
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/*_fuzz.cpp; do targets+=("$(basename "$source" _fuzz.cpp)"); done
fi
for target in "${targets[@]}"; do
  [[ -f tests/fuzz/${target}_fuzz.cpp ]] ||
    die "there is no target '$target'; there are: $(cd tests/fuzz && echo *_fuzz.cpp | sed 's/_fuzz\.cpp//g')" 2
done

build() {
  local jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  [[ -f build/cpu/CMakeCache.txt ]] || cmake --preset cpu
  cmake --build build/cpu --target ringtape_shared --parallel "$jobs"
  cmake -S tests/fuzz -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_RUNTIME_OUTPUT_DIRECTORY=bin
  cmake --build build/fuzz --parallel "$jobs" --target seeds "${targets[@]/%/_fuzz}"
}
mkdir -p build
quietly "building build/fuzz: ${targets[*]}" build/fuzz.log build
rm -rf build/fuzz/seeds
build/fuzz/bin/seeds build/fuzz/seeds

# An input decides how much memory is taken for it: a file of a few kilobytes is never worth 256 MiB in one piece.
flags=(-malloc_limit_mb=256 -rss_limit_mb=1024 -timeout=10 -max_len=8192
  -artifact_prefix=build/fuzz/ -print_final_stats=1)
for target in "${targets[@]}"; do
  inputs=(build/fuzz/seeds/"$target")
  for folder in tests/fuzz/found/"$target" tests/fixtures/"$target"; do
    if [[ -d $folder ]]; then inputs+=("$folder"); fi
  done
  if ((seconds)); then
    mkdir -p build/fuzz/corpus/"$target"
    budget=(-max_total_time="$seconds" -use_value_profile=1 build/fuzz/corpus/"$target")
  else
    budget=(-runs=5000 -max_total_time=5 -seed=1)
  fi
  log=build/fuzz/$target.log
  build/fuzz/bin/"${target}_fuzz" "${flags[@]}" "${budget[@]}" "${inputs[@]}" >"$log" 2>&1 </dev/null ||
    { tail -n 40 "$log" >&2 && die "$target: a finding; the whole output is in $log"; }
  printf 'fuzz: %-13s %8s runs\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
done
