#!/usr/bin/env bash
# Builds ringtape with all tests and benchmarks, and runs the tests.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: ./test.sh [--sanitize] [--full] [--build-only] [--no-setup] [-DNAME=VALUE ...]

Installs the missing Debian packages, builds everything in build/cpu and runs all tests.
  --sanitize    then the same tests in build/asan, under AddressSanitizer and UndefinedBehaviorSanitizer
  --full        also the slow tests: every order of the emulation, every instruction set
  --build-only  run no tests
  --no-setup    install nothing
  -DNAME=VALUE  for CMake, of build/cpu: -DRINGTAPE_BENCH=OFF
USAGE
}

readonly cpu_size="2 GB" asan_size="2 GB" # of build/cpu and build/asan, about

cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh

setup=true build_only=false presets=(cpu) full=() sanitized=() definitions=()
for argument; do
  case "$argument" in
    -h | --help) usage && exit ;;
    --sanitize) presets=(cpu asan) ;;
    --full)
      full=(-DRINGTAPE_ALL_CHECKS=ON -DRINGTAPE_ISAS=all)
      sanitized=(-DRINGTAPE_ALL_CHECKS=ON -DRINGTAPE_ISAS=native -DRINGTAPE_CUDA=EMULATED)
      ;;
    --build-only) build_only=true ;;
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
show_tests() { # PRESET LOG
  ctest --preset "$1" --output-on-failure --no-tests=error \
    --parallel "${CTEST_PARALLEL_LEVEL:-$(($(nproc) + 1))}" 2>&1 </dev/null |
    tee "$2" |
    { grep -Ev --line-buffered '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* Passed )|^Test project |^$' || true; }
}
run_tests() {
  local preset=$1 log=build/$1-tests.log began=$SECONDS
  echo "test.sh: testing build/$preset"
  own_job show_tests "$preset" "$log" || die "tests failed; the whole output is in $PWD/$log"
  echo "test.sh: done in $((SECONDS - began)) s"
}

if $setup; then set_up ./setup.sh test; fi
mkdir -p build
choose_compiler
setup_command="./setup.sh test"
for preset in "${presets[@]}"; do
  case "$preset" in
    cpu)
      build_size=$cpu_size
      quietly "building build/cpu: all tests and benchmarks" build/cpu.log build cpu "${full[@]}" "${definitions[@]}"
      ;;
    asan)
      build_size=$asan_size
      quietly "building build/asan: all tests, with ASan and UBSan" build/asan.log build asan "${sanitized[@]}"
      ;;
  esac
  $build_only || run_tests "$preset"
done
$build_only || grep -h '% tests passed' build/cpu-tests.log
