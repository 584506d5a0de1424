#!/usr/bin/env bash
# Installs the Debian packages for building, testing and benchmarking ringtape.
set -euo pipefail

readonly build=(g++ cmake ninja-build ccache libcli11-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev zlib1g-dev
  libjpeg-dev libpng-dev libssl-dev)
readonly test=(libgtest-dev libgmock-dev libbenchmark-dev openmpi-bin libopenmpi3 iproute2 curl git python3 strace)
readonly check=(clang clang-tidy libclang-rt-14-dev)
readonly peers=(libdnnl-dev libopenblas-dev)

usage() {
  cat <<USAGE
Usage: ./setup.sh [build|test|check|bench]

Installs what is missing of these Debian packages, as root or with sudo; does nothing if all are there.
  build  ${build[*]}
  test   the above and ${test[*]} (the default)
  check  those of test and ${check[*]}, for fuzzing (tests/fuzz/run.sh) and clang's checks (tests/tidy.sh)
  bench  those of test and ${peers[*]}, which the benchmarks compare with
USAGE
}

die() {
  printf 'setup.sh: error: %s\n' "$1" >&2
  exit "${2:-1}"
}

(($# <= 1)) || die "expected one argument at most; ./setup.sh --help explains" 2
case "${1:-test}" in
  -h | --help) usage && exit ;;
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  check) wanted=("${build[@]}" "${test[@]}" "${check[@]}") ;;
  bench) wanted=("${build[@]}" "${test[@]}" "${peers[@]}") ;;
  *) die "unknown argument '$1': build, test, check or bench" 2 ;;
esac

command -v apt-get >/dev/null || die "there is no apt-get here; install what your system calls these: ${wanted[*]}"

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

log=$(mktemp -t ringtape-setup-XXXXXX.log)
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

echo "setup.sh: installing with ${as_root[*]:+sudo }apt-get: ${missing[*]}"
began=$SECONDS
apt update || true # an unreachable source matters only if it has one of the packages
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  tail -n 15 "$log" >&2
  die "apt-get could not install them; all it said is in $log"
fi
rm -f "$log"
echo "setup.sh: done in $((SECONDS - began)) s"
