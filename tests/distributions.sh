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
Variables: TMPDIR; RINGTAPE_DEBIAN_MIRROR [that of this machine's apt]; CMAKE_BUILD_PARALLEL_LEVEL and
CTEST_PARALLEL_LEVEL are passed on. Exit status: 0 all passed, 1 something failed, 2 usage, 77 skipped.
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh
# shellcheck source=tests/fresh_system.sh
source tests/fresh_system.sh

if_interrupted="the systems it made are removed"
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

needs_fresh_systems

logs=$PWD/build/distributions
work=$(realpath "$(mktemp -d -t ringtape-distributions-XXXXXX)")
mkdir -p "$logs"

trap 'set +e; remove "$work"' EXIT

system_with_clone() { # SYSTEM
  local system=$1 root=$work/$1
  make_system "$system" "$root" || return
  git clone --quiet --no-hardlinks . "$root/ringtape" || return
  if $uncommitted; then
    git ls-files --deleted -z | (cd "$root/ringtape" && xargs -0r rm -f --) &&
      git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
        if [[ -e $file ]]; then printf '%s\0' "$file"; fi
      done | sort -zu | tar -c --null -T - | tar -x --no-same-owner -C "$root/ringtape"
  fi
}

# step SYSTEM COMPILER NAME COMMAND...: a line of how it went. The others are run even if one fails.
failures=0
step() {
  local system=$1 compiler=$2 name=$3 log=$logs/$1${2:+-$2}-${3//[^-.a-z0-9]/}.log began=$SECONDS result=ok
  shift 3
  own_job logged "$log" in_system "$work/$system" "$@" || result=FAILED
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
  if ! own_job logged "$log" system_with_clone "$system"; then
    if of_mirror "$log"; then
      echo "distributions.sh: skipped: $(debian_mirror) cannot be reached (RINGTAPE_DEBIAN_MIRROR names another)"
      exit 77
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
