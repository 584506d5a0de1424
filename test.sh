#!/usr/bin/env bash
# Builds ringtape with all tests and benchmarks, and runs the tests.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: ./test.sh [--sanitize] [--full] [--build-only] [--no-setup] [-DNAME=VALUE ...] [NAME...]

Installs the missing Debian packages, builds everything in build/cpu and runs all tests, or those of these names, such
as ddp_test or 'View.*', having built what they need.
  --sanitize    in build/asan, under AddressSanitizer and UndefinedBehaviorSanitizer
  --full        also the slow tests: every order of the emulation, every instruction set
  --build-only  run no tests
  --no-setup    install nothing
  -DNAME=VALUE  for CMake, of build/cpu: -DRINGTAPE_BENCH=OFF
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh

setup=true build_only=false full=false preset=cpu definitions=() names=()
for argument; do
  case "$argument" in
    -h | --help) usage && exit ;;
    --sanitize) preset=asan ;;
    --full) full=true ;;
    --build-only) build_only=true ;;
    --no-setup) setup=false ;;
    -D?*=*) definitions+=("$argument") ;;
    -*) die "unknown argument '$argument'; ./test.sh --help lists all" 2 ;;
    *) names+=("$argument") ;;
  esac
done
if $full; then
  definitions+=(-DRINGTAPE_ALL_CHECKS=ON)
  if [[ $preset == asan ]]; then
    definitions+=(-DRINGTAPE_ISAS=native -DRINGTAPE_CUDA=EMULATED)
  else
    definitions+=(-DRINGTAPE_ISAS=all)
  fi
fi
targets=() # programs of tests, examples; the other tests are scripts that run the program
for name in "${names[@]}"; do
  program=${name%%.*} # cuda_view_test_checked.random
  if [[ ! $program =~ _test(_checked)?$|^example_ ]]; then program=ringtape_binary; fi
  targets+=("$program")
done

build() {
  cmake --preset "$preset" -DRINGTAPE_TESTS=ON "${definitions[@]}" &&
    cmake --build --preset "$preset" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" \
      ${targets[0]:+--target "${targets[@]}"}
}

# Those that pass are not shown. One more at a time than there are cores: many mostly wait.
log=build/$preset-tests.log
show_tests() {
  local chosen=()
  if ((${#names[@]})); then chosen=(-R "^($(IFS='|' && echo "${names[*]}"))\$"); fi
  ctest --preset "$preset" --output-on-failure --no-tests=error "${chosen[@]}" \
    --parallel "${CTEST_PARALLEL_LEVEL:-$(($(nproc) + 1))}" 2>&1 </dev/null |
    tee "$log" |
    { grep -Ev --line-buffered '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* Passed )|^Test project |^$' || true; }
}

packages=test
if [[ $preset == asan ]]; then packages=check; fi # clang++
if $setup; then set_up ./setup.sh $packages; fi
mkdir -p build
choose_compiler
# shellcheck disable=SC2034 # of quietly.sh
setup_command="./setup.sh $packages" build_size="2 GB"
quietly "building build/$preset: ${names[*]:-all tests and benchmarks}" "build/$preset.log" build
$build_only && exit
began=$SECONDS
echo "test.sh: testing build/$preset"
own_job show_tests || die "tests failed; the whole output is in $PWD/$log"
echo "test.sh: done in $((SECONDS - began)) s"
# Programs, and the tests in them.
ran=build/$preset/Testing/Temporary/LastTest.log
{ sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$ran" 2>/dev/null || true; } |
  awk '{ n += $1 } END { if (n) print "tests: " n " in " NR " programs" }' | tee -a "$log"
grep -h '% tests passed' "$log"
