#!/usr/bin/env bash
# Installs the packages for building, testing and benchmarking ringtape, on Debian, Ubuntu and what is made from them.
set -euo pipefail

readonly cmake_needed=3.25 # as in CMakeLists.txt
readonly size="1 GB"       # of all packages and what they bring, about

# What the systems call g++ 12 or newer, Open MPI's library, clang's runtime of sanitizers and fuzzing; and their CMake.
readonly systems=(bookworm trixie jammy noble)
declare -rA gxx=([bookworm]=g++ [trixie]=g++ [jammy]=g++-12 [noble]=g++)
declare -rA mpi=([bookworm]=libopenmpi3 [trixie]=libopenmpi40 [jammy]=libopenmpi3 [noble]=libopenmpi3t64)
declare -rA clang_rt=([bookworm]=libclang-rt-14-dev [trixie]=libclang-rt-19-dev [jammy]=libclang-common-14-dev
  [noble]=libclang-rt-18-dev)
declare -rA cmake=([bookworm]=3.25 [trixie]=3.31 [jammy]=3.22 [noble]=3.28)

# $os_release says which system this is; only tests set another one.
readonly os_release=${RINGTAPE_OS_RELEASE:-/etc/os-release}
# shellcheck disable=SC2034 # that file sets these
os() {
  local ID='' ID_LIKE='' PRETTY_NAME='' VERSION_CODENAME='' UBUNTU_CODENAME='' DEBIAN_CODENAME=''
  # shellcheck source=/dev/null
  if [[ -r $os_release ]]; then source "$os_release"; fi
  printf '%s' "${!1:-}"
}

known=false
for codename in "$(os UBUNTU_CODENAME)" "$(os DEBIAN_CODENAME)" "$(os VERSION_CODENAME)"; do
  if [[ " ${systems[*]} " == *" $codename "* ]]; then known=true && break; fi
done
like=" $(os ID) $(os ID_LIKE) " name=$(os PRETTY_NAME)
if ! $known; then # the one whose Open MPI apt-get knows; the newest, if it knows none yet
  case "$like" in
    *" ubuntu "*) closest=(noble trixie jammy) codename=noble ;;
    *) closest=(trixie noble bookworm) codename=trixie ;;
  esac
  for system in "${closest[@]}"; do
    if apt-cache show "${mpi[$system]}" >/dev/null 2>&1; then codename=$system && break; fi
  done
fi

build=("${gxx[$codename]}" cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libtomlplusplus-dev
  zlib1g-dev libjpeg-dev libpng-dev libwebp-dev libtiff-dev libssl-dev libcpp-httplib-dev libjs-dygraphs)
readonly test=(libgtest-dev libgmock-dev libeigen3-dev libdlpack-dev libbenchmark-dev openmpi-bin "${mpi[$codename]}"
  iproute2 curl git python3 strace doxygen)
readonly check=(clang clang-format clang-tidy "${clang_rt[$codename]}" pkg-config lintian)
readonly arm=(g++-aarch64-linux-gnu qemu-user) # the libraries are unpacked by tests/arm_root.sh
readonly peers=(libdnnl-dev libopenblas-dev)
older() { [[ $1 != "$2" && $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; } # VERSION OTHER
if older "${cmake[$codename]}" $cmake_needed; then build=("${build[@]/#cmake/}"); fi # one that is no help

usage() {
  cat <<USAGE
Usage: ./setup.sh [--list] [build|test|check|arm|bench]

Installs what is missing of these packages, as root or with sudo; does nothing if all are there.
  build  ${build[*]}
  test   the above and ${test[*]} (the default)
  check  those of test and ${check[*]}, for fuzzing, clang's checks and packages
  arm    those of build and ${arm[*]}, to cross-compile for Arm and execute that
  bench  those of test and ${peers[*]}, which the benchmarks compare with
  --list prints the packages and installs nothing
Tried on Debian 12 and 13. The names of Ubuntu 22.04 and 24.04 are known, too; elsewhere the closest of these are taken.
USAGE
}

die() {
  printf 'setup.sh: error: %s\n' "$1" >&2
  exit "${2:-1}"
}

list=false
if [[ ${1:-} == --list ]]; then list=true && shift; fi
(($# <= 1)) || die "expected one argument at most; ./setup.sh --help explains" 2
case "${1:-test}" in
  -h | --help) usage && exit ;;
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  check) wanted=("${build[@]}" "${test[@]}" "${check[@]}") ;;
  arm) wanted=("${build[@]}" "${arm[@]}") ;;
  bench) wanted=("${build[@]}" "${test[@]}" "${peers[@]}") ;;
  *) die "unknown argument '$1': build, test, check, arm or bench" 2 ;;
esac
read -ra wanted <<<"${wanted[*]}" # without the empty ones
if $list; then
  printf '%s\n' "${wanted[@]}"
  exit
fi

# Another system: what is needed by its own name, and by the system's where that is known.
if ! command -v apt-get >/dev/null; then
  plain="g++ 12 or clang++ 14, CMake $cmake_needed, Ninja, fmt, nlohmann-json, toml++, zlib, libjpeg, libpng,"
  plain+=" libwebp, libtiff, OpenSSL"
  fedora="gcc-c++ cmake ninja-build fmt-devel json-devel tomlplusplus-devel zlib-devel libjpeg-turbo-devel"
  fedora+=" libpng-devel libwebp-devel libtiff-devel openssl-devel"
  arch="gcc cmake ninja fmt nlohmann-json tomlplusplus zlib libjpeg-turbo libpng libwebp libtiff openssl"
  if [[ ! ${1:-test} =~ ^(build|arm)$ ]]; then
    plain+="; for the tests: GoogleTest, Eigen, DLPack, Google Benchmark, Open MPI, iproute2, curl, git, Python 3,"
    plain+=" strace, Doxygen"
    fedora+=" gtest-devel gmock-devel eigen3-devel dlpack-devel google-benchmark-devel openmpi iproute curl git python3"
    fedora+=" strace doxygen"
    arch+=" gtest eigen dlpack benchmark openmpi iproute2 curl git python strace doxygen"
  fi
  case "${1:-test}" in
    check)
      plain+="; clang++ with libFuzzer, clang-format, clang-tidy" fedora+=" clang clang-tools-extra compiler-rt"
      arch+=" clang compiler-rt"
      ;;
    arm) plain+="; g++ for aarch64, qemu-aarch64" ;;
    bench) plain+="; oneDNN, OpenBLAS" ;;
  esac
  case "$like" in
    *" fedora "*) how=$'\n'"(not tried) dnf install $fedora" ;;
    *" arch "*) how=$'\n'"(not tried) pacman -S --needed $arch" ;;
    *) how= ;;
  esac
  die "there is no apt-get here; install these, then use --no-setup: $plain$how"
fi

# A CMake that is too old, before anything is installed.
newer="'pip install cmake' or Kitware's APT repository brings a newer one; then start this again"
if cmake_path=$(command -v cmake); then
  found=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p') || found=''
  if [[ $found ]] && older "$found" $cmake_needed; then
    [[ $cmake_path == /usr/bin/cmake ]] || older "${cmake[$codename]}" $cmake_needed ||
      newer="remove it: the system's is newer"
    die "CMake $cmake_needed or newer is needed, $cmake_path is $found; $newer"
  fi
elif $known && older "${cmake[$codename]}" $cmake_needed; then
  die "CMake $cmake_needed or newer is needed, ${name:-this system} has ${cmake[$codename]}; $newer"
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=absent
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup.sh: all ${#wanted[@]} Debian packages are installed"
  exit
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    die "neither root nor sudo; run as root: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo)
fi

log=$(mktemp -t ringtape-setup-XXXXXX.log) || die "no file can be made in ${TMPDIR:-/tmp}; is its disk full?"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

# Ctrl-C ends a download at once. Packages being unpacked are finished: half installed they would be in the way.
interrupted() {
  rm -f "$log"
  die "interrupted; start it again and it goes on where it stopped" "$1"
}
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
failed() {
  local unknown
  unknown=$(sed -nE "s/^E: (Unable to locate package |Package ')([^' ]+)('? has no installation candidate)?$/\2/p" \
    "$log" | sort -u | paste -sd ' ')
  if grep -qE "No space left on device|enough free space in" "$log"; then
    die "the disk is full: /var has $(df -hP /var | awk 'NR == 2 { print $4 }') free, packages need about $size"
  elif [[ $unknown ]]; then
    die "${name:-this system} has no package $unknown; install what stands for it, then use --no-setup"
  elif grep -qE "Temporary failure resolving|Could not connect|Could not resolve" "$log"; then
    die "apt-get reaches none of its servers; with network start this again"
  fi
  tail -n 15 "$log" >&2
  die "apt-get could not install them; all it said is in $log"
}

$known || echo "setup.sh: ${name:-this system} is none of those known; the names are those of $codename"
echo "setup.sh: installing with ${as_root[*]:+sudo }apt-get: ${missing[*]}"
began=$SECONDS
apt update || true # an unreachable source matters only if it has one of the packages
apt install -y --no-install-recommends --download-only "${missing[@]}" || failed
(trap '' INT && apt install -y --no-install-recommends "${missing[@]}") || failed
rm -f "$log"
echo "setup.sh: done in $((SECONDS - began)) s"
