#!/usr/bin/env bash
# The quick start, all tests and the other compilers on fresh Debian systems.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: tests/distributions.sh [OPTION...] [bookworm|trixie ...]

For each of these systems, or both: makes a fresh one in a temporary folder (debootstrap, as root), clones HEAD into it,
runs ./quickstart.sh and ./test.sh there, then compiles everything with the system's other compilers. Warnings are
errors. A line each tells how it went; logs are kept in build/distributions. A system takes 4 GB and about an hour of
two cores.
  --build-only   run no tests
  --compilers    only compile, with each of the compilers
  --no-tests     leave the tests out of what the other compilers compile
  --uncommitted  with the changes of this work tree
Variables: TMPDIR; RINGTAPE_DEBIAN_MIRROR [http://deb.debian.org/debian]; CMAKE_BUILD_PARALLEL_LEVEL and
CTEST_PARALLEL_LEVEL are passed on. Exit status: 0 all passed, 1 something failed, 2 usage, 77 skipped.
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh

if_interrupted="the systems it made are removed"
readonly mirror=${RINGTAPE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
# The system's own compiler first: ./test.sh takes this one.
declare -rA compilers=([bookworm]="g++-12 clang++-14" [trixie]="g++-14 g++-13 clang++-19")

systems=() build_only=false only_compilers=false tests=ON uncommitted=false
for argument; do
  case "$argument" in
    -h | --help) usage && exit ;;
    --build-only) build_only=true ;;
    --compilers) only_compilers=true ;;
    --no-tests) tests=OFF ;;
    --uncommitted) uncommitted=true ;;
    bookworm | trixie) systems+=("$argument") ;;
    *) die "unknown argument '$argument'; tests/distributions.sh --help lists all" 2 ;;
  esac
done
if ((${#systems[@]} == 0)); then systems=(bookworm trixie); fi

skip() { echo "distributions.sh: skipped: $1" && exit 77; }
((EUID == 0)) || skip "only root can make a system of its own"
command -v debootstrap >/dev/null || skip "there is no debootstrap (apt-get install debootstrap)"

logs=$PWD/build/distributions
work=$(mktemp -d -t ringtape-distributions-XXXXXX)
mkdir -p "$logs"

# Removes a folder, with all that runs in it and is mounted in it, the last first. Nothing is removed as long as
# something is mounted: it may be this machine's.
mounts() { awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac; }
remove() { # FOLDER
  local process mount
  for process in /proc/[0-9]*; do
    if [[ $(readlink "$process/root") == "$1"/* ]]; then kill -KILL "${process##*/}"; fi
  done 2>/dev/null
  while read -r mount; do umount "$mount" 2>/dev/null || umount --lazy "$mount"; done < <(mounts "$1")
  if [[ $(mounts "$1") ]]; then
    echo "distributions.sh: still mounted, so not removed: $1" >&2
  else
    rm -rf --one-file-system "$1"
  fi
}
trap 'set +e; remove "$work"' EXIT

make_system() { # SYSTEM
  local system=$1 root=$work/$1
  # debootstrap has no limit of its own for an unreachable mirror.
  debootstrap --variant=minbase "$system" "$root" "$mirror" || return
  mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" && mount --rbind /dev "$root/dev" &&
    mount --make-rprivate "$root/dev" || return # or what is unmounted there is here, too
  # A mirror that is a copy may be older than its files allow.
  printf '%s\n' 'Acquire::Check-Valid-Until "false";' 'Acquire::Check-Date "false";' \
    >"$root/etc/apt/apt.conf.d/99ringtape"
  git clone --quiet --no-hardlinks . "$root/ringtape" || return
  if $uncommitted; then
    git ls-files --deleted -z | (cd "$root/ringtape" && xargs -0r rm -f --) &&
      git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
        if [[ -e $file ]]; then printf '%s\0' "$file"; fi
      done | sort -zu | tar -c --null -T - | tar -x --no-same-owner -C "$root/ringtape"
  fi
}

inside() { # SYSTEM COMMAND...: runs it in the clone
  local system=$1 variables=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 RINGTAPE_WERROR=ON) name
  shift
  for name in CMAKE_BUILD_PARALLEL_LEVEL CTEST_PARALLEL_LEVEL http_proxy; do
    if [[ ${!name:-} ]]; then variables+=("$name=${!name}"); fi
  done
  env -i "${variables[@]}" chroot "$work/$system" sh -c 'cd /ringtape && exec "$@"' sh "$@"
}

# step SYSTEM COMPILER NAME COMMAND...: a line of how it went. The others are run even if one fails.
failures=0
step() {
  local system=$1 compiler=$2 name=$3 log=$logs/$1${2:+-$2}-${3//[^-.a-z0-9]/}.log began=$SECONDS result=ok
  shift 3
  own_job logged "$log" inside "$system" "$@" || result=FAILED
  printf '%-8s  %-10s  %-24s  %5d s  %-6s  %s\n' "$system" "$compiler" "$name" $((SECONDS - began)) $result \
    "$(grep -v '^ *$' "$log" | tail -n 1 | cut -c -100)"
  if [[ $result == FAILED ]]; then
    failures=$((failures + 1))
    echo "distributions.sh: $system: $name failed; the whole output is in $log" >&2
    return 1
  fi
}

# Everything, with one of the other compilers. Nothing of it is run: the system's libraries may need the newer standard
# library of its own compiler.
compile() { # COMPILER
  local folder=build/$1
  cmake --preset release -B "$folder" -DCMAKE_CXX_COMPILER="$1" -DRINGTAPE_ISAS=all -DRINGTAPE_TESTS="$tests" \
    -DRINGTAPE_BENCH=ON -DCMAKE_EXE_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-all &&
    cmake --build "$folder" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" && rm -rf "$folder"
}

for system in "${systems[@]}"; do
  log=$logs/$system-system.log began=$SECONDS
  if ! own_job logged "$log" make_system "$system"; then
    if grep -qE 'Failed getting release file|unable to resolve|Temporary failure|unreachable' "$log"; then
      skip "$mirror cannot be reached (RINGTAPE_DEBIAN_MIRROR names another)"
    fi
    tail -n 5 "$log" >&2
    die "a fresh $system could not be made; the whole output is in $log"
  fi
  printf '%-8s  %-10s  %-24s  %5d s\n' "$system" "" "made" $((SECONDS - began))
  read -ra names <<<"${compilers[$system]}"
  own=${names[0]}
  if ! $only_compilers; then
    step "$system" "$own" quickstart.sh ./quickstart.sh || true
    if $build_only; then
      step "$system" "$own" "test.sh --build-only" ./test.sh --build-only || true
    else
      step "$system" "$own" test.sh ./test.sh || true
    fi
    names=("${names[@]:1}")
  fi
  packages=("${names[@]/clang++/clang}")
  # shellcheck disable=SC2016 # expanded there
  if step "$system" "" "installing compilers" bash -c './setup.sh test && DEBIAN_FRONTEND=noninteractive \
      apt-get -q install -y --no-install-recommends "$@"' bash "${packages[@]}"; then
    for compiler in "${names[@]}"; do
      step "$system" "$compiler" "compiling" bash -c "tests=$tests; $(declare -f compile); compile $compiler" || true
    done
  fi
  (set +e && remove "$work/$system")
done
((failures == 0)) || die "$failures of the above failed; the logs are in $logs"
