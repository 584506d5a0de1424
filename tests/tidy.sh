#!/usr/bin/env bash
# Runs clang-tidy on the tree with the checks of .clang-tidy.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: tests/tidy.sh [--changed [COMMIT]] [FILE...]

Looks at every source file as it is compiled by clang++ (build/clang, configured here; nothing is
built), or at FILE. The whole tree takes about an hour of two cores; tests/clang_warnings.py has the
compiler's own warnings in minutes.
  --changed   those of the sources that differ from COMMIT (origin/main)
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=../.ci/quietly.sh
source .ci/quietly.sh

files=() changed='' commit=origin/main
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --changed)
      changed=yes
      if [[ ${2:-} && $2 != -* && ! -f $2 ]]; then commit=$2 && shift; fi
      ;;
    -*) die "unknown argument '$1'; tests/tidy.sh --help lists all" 2 ;;
    *) files+=("$1") ;;
  esac
  shift
done
command -v run-clang-tidy >/dev/null || die "there is no run-clang-tidy; ./setup.sh check installs it"

mkdir -p build
quietly "configuring build/clang" build/clang.log cmake --preset clang
if [[ $changed ]]; then
  git rev-parse --quiet --verify "$commit^{commit}" >/dev/null || die "there is no commit '$commit'" 2
  mapfile -t files < <(git diff --name-only --diff-filter=d "$commit" -- '*.cpp' '*.cu')
  if ((${#files[@]} == 0)); then
    echo "tidy.sh: no source differs from $commit" && exit
  fi
fi
# Regular expressions for whole paths.
patterns=()
for file in "${files[@]}"; do patterns+=("/${file//./\\.}\$"); done

log=build/tidy.log
run-clang-tidy -quiet -p build/clang -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" "${patterns[@]}" \
  >"$log" 2>&1 </dev/null || {
  { grep -E ': (warning|error): ' "$log" || tail -n 5 "$log"; } | sort -u >&2
  die "clang objects to the above; the whole output is in $log"
}
echo "tidy.sh: nothing to object to in ${#files[@]} files" | sed 's/ in 0 files//'
