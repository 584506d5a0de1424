#!/usr/bin/env bash
# setup.sh on other systems, without root and network: /etc/os-release and the programs it calls are made up.
# shellcheck disable=SC2016 # they expand what is in their scripts
set -euo pipefail
setup=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 checks=0

expect() { # WHAT EXPECTED GOT
  checks=$((checks + 1))
  [[ $2 == "$3" ]] || { failures=$((failures + 1)) && printf '%s\n  expected: %s\n  got:      %s\n' "$@" >&2; }
}
contain() { # WHAT PART GOT: a part of one line
  checks=$((checks + 1))
  [[ $3 == *"$2"* && $3 != *$'\n'* ]] ||
    { failures=$((failures + 1)) && printf '%s\n  expected a line with: %s\n  got: %s\n' "$@" >&2; }
}

# The systems' own files, of which these lines matter.
os() { printf '%s\n' "${@:2}" >"$work/$1"; }
os debian12 ID=debian 'VERSION_ID="12"' VERSION_CODENAME=bookworm 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'
os debian13 ID=debian 'VERSION_ID="13"' VERSION_CODENAME=trixie 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"'
os ubuntu2204 ID=ubuntu ID_LIKE=debian VERSION_CODENAME=jammy UBUNTU_CODENAME=jammy 'PRETTY_NAME="Ubuntu 22.04.5 LTS"'
os ubuntu2404 ID=ubuntu ID_LIKE=debian VERSION_CODENAME=noble UBUNTU_CODENAME=noble 'PRETTY_NAME="Ubuntu 24.04.1 LTS"'
os mint22 ID=linuxmint 'ID_LIKE="ubuntu debian"' VERSION_CODENAME=wilma UBUNTU_CODENAME=noble
os lmde6 ID=linuxmint ID_LIKE=debian VERSION_CODENAME=faye DEBIAN_CODENAME=bookworm
os pop ID=pop 'ID_LIKE="ubuntu debian"' VERSION_CODENAME=jammy UBUNTU_CODENAME=jammy
os ubuntu2604 ID=ubuntu ID_LIKE=debian VERSION_CODENAME=resolute 'PRETTY_NAME="Ubuntu 26.04 LTS"'
os kali ID=kali ID_LIKE=debian VERSION_CODENAME=kali-rolling 'PRETTY_NAME="Kali GNU/Linux Rolling"'
os fedora ID=fedora VERSION_ID=41 'PRETTY_NAME="Fedora Linux 41"'
os manjaro ID=manjaro ID_LIKE=arch
os alpine ID=alpine

# A PATH with the few programs that setup.sh needs and those that a test makes up.
mkdir "$work/bin"
for program in bash env sort head sed grep awk tail tr paste mktemp rm cat df; do
  ln -s "$(command -v $program)" "$work/bin"
done
fake() { printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; } # NAME SCRIPT
run() { # SYSTEM ARGUMENT...: what it prints, and its exit status
  local system=$1 status=0
  shift
  RINGTAPE_OS_RELEASE=$work/$system PATH=$work/bin TMPDIR=$work "$work/bin/bash" "$setup" "$@" 2>&1 || status=$?
  echo "exit $status"
}
says() { # the same, without "setup.sh: error: "
  local out
  out=$(run "$@")
  out=${out#setup.sh: error: }
  printf '%s' "${out/$'\n'exit / -> }"
}

# The lists.
build="cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libtomlplusplus-dev zlib1g-dev libjpeg-dev"
build+=" libpng-dev libwebp-dev libtiff-dev libssl-dev libcpp-httplib-dev libjs-dygraphs"
list() { run "$@" | paste -sd ' '; }
lists() { # SYSTEM BUILD MPI CLANG_RT
  local all="$2 libgtest-dev libgmock-dev libeigen3-dev libdlpack-dev libbenchmark-dev openmpi-bin $3 iproute2 curl git"
  all+=" python3 strace doxygen"
  expect "$1, build" "$2 exit 0" "$(list "$1" --list build)"
  expect "$1, test" "$all exit 0" "$(list "$1" --list)"
  expect "$1, check" "$all clang clang-format clang-tidy $4 pkg-config lintian exit 0" "$(list "$1" --list check)"
  expect "$1, arm" "$2 g++-aarch64-linux-gnu qemu-user exit 0" "$(list "$1" --list arm)"
  expect "$1, bench" "$all libdnnl-dev libopenblas-dev exit 0" "$(list "$1" --list bench)"
}
lists debian12 "g++ $build" libopenmpi3 libclang-rt-14-dev
lists lmde6 "g++ $build" libopenmpi3 libclang-rt-14-dev
lists debian13 "g++ $build" libopenmpi40 libclang-rt-19-dev
lists kali "g++ $build" libopenmpi40 libclang-rt-19-dev
lists ubuntu2204 "g++-12 ${build#cmake }" libopenmpi3 libclang-common-14-dev
lists pop "g++-12 ${build#cmake }" libopenmpi3 libclang-common-14-dev
lists ubuntu2404 "g++ $build" libopenmpi3t64 libclang-rt-18-dev
lists mint22 "g++ $build" libopenmpi3t64 libclang-rt-18-dev
lists ubuntu2604 "g++ $build" libopenmpi3t64 libclang-rt-18-dev
fake apt-cache '[ "$2" = libopenmpi40 ]' # such a system has the names of a later Debian
lists ubuntu2604 "g++ $build" libopenmpi40 libclang-rt-19-dev
lists ubuntu2404 "g++ $build" libopenmpi3t64 libclang-rt-18-dev
rm "$work/bin/apt-cache"

# Systems without apt-get: one line of what is needed, and one with their names where these are known.
expect "no apt-get" "there is no apt-get here; install these, then use --no-setup: g++ 12 or clang++ 14, CMake 3.25, \
Ninja, fmt, nlohmann-json, toml++, zlib, libjpeg, libpng, libwebp, libtiff, OpenSSL -> 1" "$(says alpine build)"
said="OpenSSL; for the tests: GoogleTest, Eigen, DLPack, Google Benchmark, Open MPI"
contain "no apt-get, test" "$said" "$(says alpine)"
contain Fedora "(not tried) dnf install gcc-c++ cmake" "$(says fedora build | tail -n 1)"
contain Arch "(not tried) pacman -S --needed gcc cmake" "$(says manjaro test | tail -n 1)"

# A CMake that is too old, before anything is installed.
fake apt-get "echo \"\$*\" >>$work/apt; cat $work/apt-says 2>/dev/null && exit 100; exit 0"
fake dpkg-query 'exit 1'
fake sudo 'exec "$@"'
newer="'pip install cmake' or Kitware's APT repository brings a newer one; then start this again -> 1"
expect "Ubuntu 22.04" "CMake 3.25 or newer is needed, Ubuntu 22.04.5 LTS has 3.22; $newer" "$(says ubuntu2204)"
fake cmake 'echo "cmake version 3.22.1"'
expect "Ubuntu 22.04, with its CMake" "CMake 3.25 or newer is needed, $work/bin/cmake is 3.22.1; $newer" \
  "$(says ubuntu2204 build)"
expect "Debian 13, with an old CMake before it" \
  "CMake 3.25 or newer is needed, $work/bin/cmake is 3.22.1; remove it: the system's is newer -> 1" "$(says debian13)"
expect "nothing was installed" "" "$(cat "$work/apt" 2>/dev/null)"
fake cmake 'echo "cmake version 4.1.2"'
expect "Ubuntu 22.04, with a new CMake" "0" "$(says ubuntu2204 build | sed -n 's/.* -> //p')"
contain "Ubuntu 22.04, with a new CMake" "g++-12 ninja-build" "$(tail -n 1 "$work/apt")"
expect "the CMake that CMakeLists.txt wants" "cmake_minimum_required(VERSION 3.25)" \
  "$(head -n 1 "$(dirname "$setup")/CMakeLists.txt")"

# What is there is not installed; an unknown system is named.
fake dpkg-query 'echo installed'
rm "$work/apt"
expect "all there" "setup.sh: all 15 Debian packages are installed -> 0" "$(says debian12 build)"
expect "all there: no apt-get" "" "$(cat "$work/apt" 2>/dev/null)"
fake dpkg-query 'exit 1'
contain Kali "Kali GNU/Linux Rolling is none of those known; the names are those of trixie" \
  "$(says kali build | head -n 1)"

# What apt-get may say.
refused() { # WHAT EXPECTED LINE
  echo "$3" >"$work/apt-says"
  contain "$1" "$2" "$(says debian13 build | tail -n 1)"
}
refused "no such package" "has no package libtomlplusplus-dev; install what stands for it, then use --no-setup -> 1" \
  "E: Unable to locate package libtomlplusplus-dev"
refused "no candidate" "has no package libopenmpi3; install" "E: Package 'libopenmpi3' has no installation candidate"
refused "a full disk" "the disk is full: /var has " \
  "E: You don't have enough free space in /var/cache/apt/archives/."
refused "no network" "apt-get reaches none of its servers; with network start this again -> 1" \
  "W: Failed to fetch http://a.example/InRelease  Temporary failure resolving 'a.example'"
rm "$work/apt-says" "$work"/ringtape-setup-*.log

# A signal.
fake apt-get "[ \"\$6\" = update ] || { : >$work/started; $(command -v sleep) 1; }"
RINGTAPE_OS_RELEASE=$work/debian13 PATH=$work/bin TMPDIR=$work "$work/bin/bash" "$setup" build >"$work/out" 2>&1 &
for ((i = 0; i < 100; ++i)); do
  [[ ! -f $work/started ]] || break
  sleep 0.05
done
kill -TERM $! && status=0
wait $! || status=$?
expect "SIGTERM" "setup.sh: error: interrupted; start it again and it goes on where it stopped -> 143" \
  "$(tail -n 1 "$work/out") -> $status"

((failures == 0)) || { echo "setup_test.sh: $failures of $checks checks failed" >&2 && exit 1; }
echo "setup_test.sh: $checks checks passed"
