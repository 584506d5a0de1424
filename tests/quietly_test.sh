#!/usr/bin/env bash
# What quickstart.sh, test.sh and .ci/quietly.sh say when a build fails or is interrupted: one line. Nothing is built:
# the logs and the programs are made up.
# shellcheck disable=SC2013,SC2016 # the made-up programs expand what is in their scripts
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset CXX CCACHE_DIR TMPDIR
failures=0 checks=0

expect() { # WHAT EXPECTED GOT
  checks=$((checks + 1))
  [[ $2 == "$3" ]] || { failures=$((failures + 1)) && printf '%s\n  expected: %s\n  got:      %s\n' "$@" >&2; }
}

# A checkout with made-up programs in bin/, which go before the others.
mkdir -p build .ci bin
cp "$root"/{quickstart,test}.sh .
cp "$root/.ci/quietly.sh" .ci
fake() { printf '#!/bin/bash\n%s\n' "$2" >"bin/$1" && chmod +x "bin/$1"; } # NAME SCRIPT
PATH=$work/bin:$PATH
fake df 'printf "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 9 9 %s 0%% /\n" "$(cat free)"'
echo 81920000 >free
cat >build.sh <<'SCRIPT'
#!/usr/bin/env bash
set -euo pipefail
source .ci/quietly.sh
setup_command="./setup.sh build" build_size="150 MB"
build() { cat said && return 1; }
quietly "building build/release/ringtape" build/release.log build
SCRIPT

says() { # WHAT EXPECTED: of a build that says standard input and fails: standard error and the exit status
  local status=0
  cat >said
  bash build.sh >out 2>err || status=$?
  expect "$1" "build.sh: error: building build/release/ringtape failed: $2 -> 1" "$(cat err) -> $status"
  expect "$1: standard output" "build.sh: building build/release/ringtape" "$(cat out)"
}

says "a full disk" \
  "the disk of build is full (80000 MB are free, a build takes about 150 MB); make room and start it again" \
  <<<"fatal error: error writing to /tmp/ccTvSxGy.s: No space left on device"
echo 1024 >free
says "a disk too full for the message" \
  "the disk of build is full (1 MB are free, a build takes about 150 MB); make room and start it again" <<<"FAILED: a.o"
echo 81920000 >free

few="too little memory for so many compilers; with fewer: CMAKE_BUILD_PARALLEL_LEVEL=1 build.sh"
says "a killed g++" "$few" <<'LOG'
FAILED: CMakeFiles/ringtape_train.dir/Unity/unity_0_cxx.cxx.o
/usr/bin/ccache /usr/bin/c++ -O2 -c unity_0_cxx.cxx
c++: fatal error: Killed signal terminated program cc1plus
compilation terminated.
ninja: build stopped: subcommand failed.
LOG
says "a killed clang" "$few" <<<"clang: error: unable to execute command: Killed"
says "a killed linker" "$few" <<<"collect2: fatal error: ld terminated with signal 9 [Killed]"
says "no memory" "$few" <<<"virtual memory exhausted: Cannot allocate memory"

says "missing packages" "there is no fmt, ZLIB; this installs what is missing: ./setup.sh build" <<'LOG'
CMake Error at cmake/dependencies.cmake:43 (message):
  Not found:

    fmt (formatting)
    ZLIB (gz data sets)

  On Debian and Ubuntu: apt-get install g++ cmake ninja-build libfmt-dev
  nlohmann-json3-dev

  (or run ./setup.sh)
Call Stack (most recent call first):
  CMakeLists.txt:30 (include)


-- Configuring incomplete, errors occurred!
LOG
says "no cmake" "there is no cmake; this installs what is missing: ./setup.sh build" \
  <<<"./quickstart.sh: line 52: cmake: command not found"
says "no ninja" "there is no ninja; this installs what is missing: ./setup.sh build" <<'LOG'
CMake Error: CMake was unable to find a build program corresponding to "Ninja".  CMAKE_MAKE_PROGRAM is not set.
CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage
LOG
says "no compiler" "there is no C++ compiler; this installs what is missing: ./setup.sh build" <<'LOG'
CMake Error at CMakeLists.txt:2 (project):
  No CMAKE_CXX_COMPILER could be found.
LOG
export CXX=g++-99
says "no such compiler" "there is no C++ compiler g++-99; this installs what is missing: ./setup.sh build" <<'LOG'
CMake Error at /usr/share/cmake-3.25/Modules/CMakeDetermineCXXCompiler.cmake:48 (message):
  Could not find compiler set in environment variable CXX:

  g++-99.
LOG
unset CXX

newer="this CMake is too old; 'pip install cmake' or Kitware's APT repository brings a newer one"
says "an old CMake" "$newer" <<<'  CMake 3.25 or higher is required.  You are running version 3.22.1'
says "an old CMake, at the presets" "$newer" <<<'Could not read presets from /a: Unrecognized "version" field'
says "an old compiler" "ringtape needs g++ 12 or newer, /usr/bin/c++ is 11.3.0" <<'LOG'
CMake Error at cmake/dependencies.cmake:6 (message):
   ringtape needs g++ 12 or newer, /usr/bin/c++ is 11.3.0
Call Stack (most recent call first):
LOG

stale="build/release was made elsewhere or by another generator; remove it: rm -r build/release"
says "another generator" "$stale" <<'LOG'
CMake Error: Error: generator : Ninja
Does not match the generator used previously: Unix Makefiles
LOG
says "a moved folder" "$stale" <<'LOG'
CMake Error: The current CMakeCache.txt directory /b/CMakeCache.txt is different than the directory /a where
CMake Error: The source "/b/CMakeLists.txt" does not match the source "/a/CMakeLists.txt" used to generate cache.
LOG

# An unknown cause: what failed, and where all of it is.
printf '%s\n' "[1/2] a" "FAILED: b.o" "b.cpp:1: error: what" >said
bash build.sh >out 2>err || true
expect "an error in a source" "FAILED: b.o
b.cpp:1: error: what
build.sh: error: building build/release/ringtape failed; the whole output is in build/release.log" "$(cat err)"

# A log that cannot be written.
mkdir build/release.log.folder && mv build/release.log .ci/ && mv build/release.log.folder build/release.log
bash build.sh >out 2>err || true
expect "no log" "build.sh: error: building build/release/ringtape failed: cannot write build/release.log; its disk has \
80000 MB free" "$(cat err)"
rmdir build/release.log

# The scripts themselves.
status=0
fake cmake 'echo "./quickstart.sh: line 1: cmake: command not found"; exit 127'
./quickstart.sh --no-setup >out 2>err || status=$?
expect "quickstart.sh" "quickstart.sh: error: building build/release/ringtape failed: there is no cmake; this installs \
what is missing: ./setup.sh build -> 1" "$(cat err) -> $status"
fake cmake 'echo "CMake Error: Error: generator : Ninja
Does not match the generator used previously: Unix Makefiles"; exit 1'
status=0
./test.sh --no-setup >out 2>err || status=$?
expect "test.sh" "test.sh: error: building build/cpu: all tests and benchmarks failed: build/cpu was made elsewhere or \
by another generator; remove it: rm -r build/cpu -> 1" "$(cat err) -> $status"

# Signals: a build, and tests, of which some processes have a process group of their own, as Ninja's compilers do, or
# do not end when they are asked to.
cat >bin/stubborn <<'SCRIPT'
#!/bin/bash
trap '' TERM INT
while :; do sleep 0.1; done
SCRIPT
chmod +x bin/stubborn
hanging() { # PROGRAM: the script of a program that starts it, in two ways
  printf '%s\n' 'set -m' "$1 & echo \$! >>pids" 'sleep 1234 & echo $! >>pids' 'set +m' "$1 &" 'echo $$ $! >>pids' \
    ': >hangs' wait
}
left() { # how many of these processes are still there
  local pid left=0
  for pid in $(cat pids); do
    if [[ -r /proc/$pid/stat && $(sed 's/.*) //' "/proc/$pid/stat") != Z* ]]; then left=$((left + 1)); fi
  done
  echo "$left"
}
interrupt() { # SIGNAL STATUS COMMAND...
  local signal=$1 expected=$2 script status=0 i
  shift 2
  rm -f hangs pids
  set -m # without it, a process in the background ignores SIGINT
  "$@" >out 2>err &
  set +m
  for ((i = 0; i < 200; ++i)); do
    [[ ! -f hangs ]] || break
    sleep 0.05
  done
  kill "-$signal" $!
  wait $! || status=$?
  script=${1##*/}
  expect "$* and SIG$signal" \
    "$script: interrupted; start it again and it goes on where it stopped -> $expected, 0 of 4 left" \
    "$(cat err) -> $status, $(left) of $(wc -w <pids) left"
}
fake cmake "$(hanging 'sleep 1234')"
interrupt INT 130 ./quickstart.sh --no-setup
fake cmake "$(hanging bin/stubborn)"
interrupt TERM 143 ./test.sh --no-setup
fake cmake 'exit 0'
fake ctest "$(hanging 'sleep 1234')"
interrupt TERM 143 ./test.sh --no-setup
fake ctest 'echo "100% tests passed, 0 tests failed out of 3"'
expect "a test that passes" "test.sh: building build/cpu: all tests and benchmarks
test.sh: done in N s
test.sh: testing build/cpu
100% tests passed, 0 tests failed out of 3
test.sh: done in N s
100% tests passed, 0 tests failed out of 3
-> 0" "$(./test.sh --no-setup 2>&1 | sed 's/done in [0-9]* s/done in N s/' && echo "-> ${PIPESTATUS[0]}")"

# A signal to the training goes on to it; its exit status is the script's.
mkdir -p build/release
cat >build/release/ringtape <<'SCRIPT'
#!/bin/bash
trap 'echo stopped; exit 75' TERM
: >hangs
while :; do sleep 0.1; done
SCRIPT
chmod +x build/release/ringtape
rm -f hangs
status=0
./quickstart.sh --no-setup >out 2>err &
for ((i = 0; i < 200; ++i)); do
  [[ ! -f hangs ]] || break
  sleep 0.05
done
kill -TERM $!
wait $! || status=$?
expect "SIGTERM in the training" "stopped -> 75" "$(tail -n 1 out) -> $status"

# On a terminal: the last line of the output, then the one line.
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then # where there are pseudo-terminals
  fake cmake 'echo "first"; echo "cmake: command not found"; exit 1'
  script -qec "./quickstart.sh --no-setup" /dev/null </dev/null >out 2>&1 || true
  expect "on a terminal" "quickstart.sh: error: building build/release/ringtape failed: there is no cmake; this \
installs what is missing: ./setup.sh build" "$(tr '\r' '\n' <out | sed 's/\x1b\[K//' | sed '/^$/d' | tail -n 1)"
  fake cmake "$(hanging 'sleep 1234')"
  rm -f hangs pids
  script -qec "./quickstart.sh --no-setup" /dev/null < <(
    for ((i = 0; i < 200; ++i)); do [[ ! -f hangs ]] && sleep 0.05; done
    printf '\003'
    sleep 3
  ) >out 2>&1 || true
  expect "Ctrl-C on a terminal" "quickstart.sh: interrupted; start it again and it goes on where it stopped, 0 left" \
    "$(tr '\r' '\n' <out | sed 's/\x1b\[K//' | sed '/^$/d' | tail -n 1), $(left) left"
fi

# A g++ that is too old is passed over, if there is a newer one.
fake g++ 'echo 11'
fake g++-12 'echo 12'
fake cmake 'echo "CXX is ${CXX:-not set}"; exit 1'
./quickstart.sh --no-setup >out 2>&1 || true
newest=$(for v in 14 13 12; do if command -v "g++-$v" >/dev/null; then echo "$v" && break; fi; done)
expect "g++ 11 and 12" "CXX is g++-$newest" "$(cat build/release.log)"
fake g++ 'echo 12'
./quickstart.sh --no-setup >out 2>&1 || true
expect "g++ 12" "CXX is not set" "$(cat build/release.log)"

((failures == 0)) || { echo "quietly_test.sh: $failures of $checks checks failed" >&2 && exit 1; }
echo "quietly_test.sh: $checks checks passed"
