#!/usr/bin/env bash
# Installs a build, moves it elsewhere, and builds programs with what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
source .ci/quietly.sh

usage() {
  cat <<'USAGE'
Usage: tests/install/run.sh [--build FOLDER] [--sources]

Installs a finished build into an empty folder, moves it, and builds and runs docs/examples/, and a project whose files
have names of ringtape's, with find_package, with its static library if it has one, and with pkg-config.
  --build FOLDER  the build [build/cpu]
  --sources       also with add_subdirectory, which compiles ringtape: minutes; FetchContent is configured
USAGE
}

build=build/cpu sources=false
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --build) build=${2:?--build: needs a folder} && shift ;;
    --sources) sources=true ;;
    *) die "unknown argument '$1'; tests/install/run.sh --help lists all" 2 ;;
  esac
  shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CMAKE_GENERATOR=Ninja CMAKE_BUILD_TYPE=Release

quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2 && die "failed: $*"; }; }
programs=(docs/examples/0[01258]_*.cpp docs/examples/09_own_kernels/main.cpp tests/install/clash/src/clash.cpp)
# As programs were written before: without one more folder on their path they must not compile.
sed 's|#include <ringtape/\(.*\)>|#include "\1"|' docs/examples/05_own_op.cpp >"$work/old_paths.cpp"
examples=$(printf "$root/%s;" "${programs[@]}")$work/old_paths.cpp

# uses NAME SOURCES [cmake's arguments]
uses() {
  local name=$1 began=$SECONDS
  quietly cmake -S tests/install -B "$work/$name" "-DSOURCES=$2" "-DCHECK=$root/docs/examples/check.cmake" "${@:3}"
  quietly cmake --build "$work/$name" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
  quietly ctest --test-dir "$work/$name" --output-on-failure --no-tests=error
  echo "$name: programs build and run, $((SECONDS - began)) s"
}

quietly cmake --install "$build" --prefix "$work/first"
mkdir "$work/new" && mv "$work/first" "$work/new/place"
prefix=$work/new/place
uses package "$examples" -DRINGTAPE_BY=package "-DCMAKE_PREFIX_PATH=$prefix"
if [[ $(find "$prefix" -name libringtape.a) ]]; then
  uses static "$root/docs/examples/08_own_tool.cpp" -DRINGTAPE_BY=static "-DCMAKE_PREFIX_PATH=$prefix"
fi

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ringtape.pc)")
export PKG_CONFIG_PATH
read -ra flags <<<"$(pkg-config --cflags ringtape)"
read -ra libraries <<<"$(pkg-config --libs ringtape)"
"${CXX:-c++}" -O1 "${flags[@]}" docs/examples/05_own_op.cpp -o "$work/own_op" "${libraries[@]}"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir ringtape) quietly \
  cmake "-DPROGRAM=$work/own_op" "-DSOURCE=$root/docs/examples/05_own_op.cpp" -P docs/examples/check.cmake
echo "pkg-config: a program builds and runs"
old=("${CXX:-c++}" -fsyntax-only "${flags[@]}" "$work/old_paths.cpp")
quietly "${old[@]}" "-I$(pkg-config --variable=includedir ringtape)/ringtape"
! "${old[@]}" 2>/dev/null || die "include/ringtape is on the path of every program"
quietly "$prefix/bin/ringtape" doctor
(cd "$work" && quietly "$prefix/bin/ringtape" train --preset shapes_mlp --max-steps 1 --limit-eval-batches 1)
echo "the installed program runs, and knows its recipes"
doc=$prefix/share/doc/ringtape
for file in README.md docs/tutorial.md docs/examples/02_mlp.cpp configs/fine_tune.toml configs/ssl/corrected.toml; do
  [[ -s $doc/$file ]] || die "not installed: share/doc/ringtape/$file"
done
[[ ! $(find "$doc" -name Doxyfile) ]] || die "installed, but of no use: Doxyfile"

if $sources; then
  own=("-DRINGTAPE_SOURCE=$root" -DRINGTAPE_ISAS=best -DRINGTAPE_CUDA=OFF -DCMAKE_UNITY_BUILD=ON)
  uses subdirectory "$root/docs/examples/05_own_op.cpp;$root/tests/install/clash/src/clash.cpp" \
    -DRINGTAPE_BY=subdirectory "${own[@]}"
  quietly cmake -S tests/install -B "$work/fetch" "-DSOURCES=$root/docs/examples/05_own_op.cpp" -DCHECK=unused \
    -DRINGTAPE_BY=fetch "${own[@]}" # it is the same build
fi
