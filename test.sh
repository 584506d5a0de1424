#!/usr/bin/env bash
# Builds ringtape with all tests and benchmarks, and runs the tests.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: ./test.sh [--sanitize] [--no-setup] [-DNAME=VALUE ...]

Installs the missing Debian packages, builds everything in build/cpu and runs all tests.
  --sanitize    then the same tests in build/asan, under AddressSanitizer and UndefinedBehaviorSanitizer
  --no-setup    install nothing
  -DNAME=VALUE  for CMake, of build/cpu: -DRINGTAPE_BENCH=OFF
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh

setup=true presets=(cpu) definitions=()
for argument; do
  case "$argument" in
    -h | --help) usage && exit ;;
    --sanitize) presets=(cpu asan) ;;
    --no-setup) setup=false ;;
    -D?*=*) definitions+=("$argument") ;;
    *) die "unknown argument '$argument'; ./test.sh --help lists all" 2 ;;
  esac
done

build() {
  cmake --preset "$@" && cmake --build --preset "$1" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
}

# All tests of a preset, of which those that pass are not shown. One more at a time than
# there are cores: many mostly wait.
run_tests() {
  local preset=$1 log=build/$1-tests.log began=$SECONDS
  echo "test.sh: testing build/$preset"
  ctest --preset "$preset" --output-on-failure --no-tests=error \
    --parallel "${CTEST_PARALLEL_LEVEL:-$(($(nproc) + 1))}" 2>&1 </dev/null |
    tee "$log" |
    { grep -Ev --line-buffered '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* Passed )|^Test project |^$' || true; } ||
    die "tests failed; the whole output is in $PWD/$log"
  echo "test.sh: done in $((SECONDS - began)) s"
}

if $setup; then ./setup.sh test; fi
mkdir -p build
for preset in "${presets[@]}"; do
  case "$preset" in
    cpu) quietly "building build/cpu: all tests and benchmarks" build/cpu.log build cpu "${definitions[@]}" ;;
    asan) quietly "building build/asan: all tests, with ASan and UBSan" build/asan.log build asan ;;
  esac
  run_tests "$preset"
done
grep -h '% tests passed' build/cpu-tests.log
