#!/usr/bin/env bash
# Builds ringtape with all tests and benchmarks and runs the tests.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: ./test.sh [--sanitize] [--no-setup] [-DNAME=VALUE ...]

Installs the missing Debian packages, builds everything in build/cpu and runs all tests.
  --sanitize    then the same tests in build/asan, under AddressSanitizer and UndefinedBehaviorSanitizer
  --no-setup    install nothing
  -DNAME=VALUE  for CMake, of build/cpu: -DRINGTAPE_WERROR=ON
USAGE
}

die() {
  printf 'test.sh: error: %s\n' "$1" >&2
  exit "${2:-1}"
}

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

cd "$(dirname "${BASH_SOURCE[0]}")"

# quietly WHAT LOG COMMAND...: the output to a log; of that its last line on a terminal, and what went wrong if it fails.
quietly() {
  local what=$1 log=$2 began=$SECONDS status=0
  shift 2
  echo "test.sh: $what"
  if [[ -t 1 ]]; then
    "$@" 2>&1 </dev/null | tee "$log" | while IFS= read -r line; do printf '\r\033[K%.78s' "$line"; done || status=1
    printf '\r\033[K'
  else
    "$@" >"$log" 2>&1 </dev/null || status=1
  fi
  if ((status)); then
    grep -m1 -A30 '^FAILED: ' "$log" >&2 || tail -n 30 "$log" >&2
    die "$what failed; the whole output is in $PWD/$log"
  fi
  echo "test.sh: done in $((SECONDS - began)) s"
}

build() {
  cmake --preset "$@" && cmake --build --preset "$1" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
}

# All tests of a preset, of which those that pass are not shown.
run_tests() {
  local preset=$1 log=build/$1-tests.log began=$SECONDS
  echo "test.sh: testing build/$preset"
  ctest --preset "$preset" --output-on-failure --no-tests=error --parallel "${CTEST_PARALLEL_LEVEL:-2}" 2>&1 </dev/null |
    tee "$log" | { grep -Ev --line-buffered '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* Passed )|^Test project |^$' || true; } ||
    die "tests failed; the whole output is in $PWD/$log"
  echo "test.sh: done in $((SECONDS - began)) s"
}

if $setup; then ./setup.sh test; fi
mkdir -p build
export UBSAN_OPTIONS=print_stacktrace=1
for preset in "${presets[@]}"; do
  case "$preset" in
    cpu) quietly "building build/cpu: all tests and benchmarks" build/cpu.log build cpu -DRINGTAPE_WERROR=OFF "${definitions[@]}" ;;
    asan) quietly "building build/asan: all tests, with ASan and UBSan" build/asan.log build asan ;;
  esac
  run_tests "$preset"
done
grep -h '% tests passed' build/cpu-tests.log
