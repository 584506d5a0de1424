#!/usr/bin/env bash
# The Debian packages in a fresh system, and a user's projects there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh
# shellcheck source=tests/fresh_system.sh
source tests/fresh_system.sh

usage() {
  cat <<'USAGE'
Usage: tests/install/root.sh [--packages FOLDER] [--sources]

In a fresh Debian 12 (debootstrap, as root): upgrades the Debian packages from an older version, then builds and runs
the README's example and docs/examples/ as a user does, with find_package, the static library and pkg-config; in the
end removes the packages. Prints the seconds that each program takes to compile.
  --packages FOLDER  what `cmake --workflow --preset package` has built [build/package]
  --sources          also with FetchContent and add_subdirectory, which compile ringtape: 10 minutes of two cores
Variables: TMPDIR; RINGTAPE_DEBIAN_MIRROR [that of this machine's apt]; CMAKE_BUILD_PARALLEL_LEVEL is passed on. Exit
status: 0 all passed, 1 something failed, 2 usage, 77 skipped.
USAGE
}

packages=build/package sources=false
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --packages) packages=${2:?--packages: needs a folder} && shift ;;
    --sources) sources=true ;;
    *) die "unknown argument '$1'; tests/install/root.sh --help lists all" 2 ;;
  esac
  shift
done
needs_fresh_systems
# shellcheck source=tests/install/packages.sh
source tests/install/packages.sh
find_packages "$packages"

work=$(realpath "$(mktemp -d -t ringtape-root-XXXXXX)")
trap 'set +e; remove "$work"' EXIT
root=$work/root
if_interrupted="the system it made is removed"

# step WHAT COMMAND...: a line with the seconds it takes.
step() {
  local what=$1 began=$EPOCHREALTIME
  shift
  own_job logged "$work/log" "$@" || { tail -n 40 "$work/log" >&2 && die "$what: failed: $*"; }
  awk -v what="$what" -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%-44s %6.1f s\n", what, b - a }'
}
inside() { in_system "$root" "$@"; }
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@"; }
user() { inside runuser -u user -- env HOME=/home/user sh -c 'cd && exec "$@"' sh "$@"; }
system() {
  make_system bookworm "$root" || return
  inside useradd --create-home user
}
if ! own_job logged "$work/log" system; then
  if of_mirror "$work/log"; then
    echo "root.sh: skipped: $(debian_mirror) cannot be reached (RINGTAPE_DEBIAN_MIRROR names another)" && exit 77
  fi
  tail -n 5 "$work/log" >&2
  die "a fresh system could not be made"
fi

# As a user gets them: an older version first.
as_older() { # PACKAGE NEW
  dpkg-deb --raw-extract "$1" "$work/older" && sed -i 's/-1\b/-0/' "$work/older/DEBIAN/control" &&
    touch "$work/older/usr/share/doc/ringtape-is-older" && dpkg-deb --build -Zgzip -z1 "$work/older" "$2"
  rm -rf "$work/older"
}
mkdir "$root/packages"
as_older "$program" "$root/packages/older.deb" >"$work/log"
cp "$program" "$root/packages/ringtape.deb" && cp "$development" "$root/packages/ringtape-dev.deb"
apt update >"$work/log"
step "installing an older ringtape" apt install /packages/older.deb
step "ringtape doctor" user ringtape doctor
step "a training by a user" user ringtape train --epochs 1 --run here
[[ -s $root/home/user/runs/here/exported/model.safetensors ]] || die "the training has left no weights"
step "upgrading to ringtape and ringtape-dev" apt install /packages/ringtape.deb /packages/ringtape-dev.deb
[[ ! -e $root/usr/share/doc/ringtape-is-older ]] || die "the upgrade leaves files of the older version"
step "no locale" user env -u LANG LC_ALL=tr_TR.UTF-8 ringtape doctor
step "installing g++, cmake, ninja, pkg-config" apt install g++ cmake ninja-build pkg-config

# The programs, in a folder of the user's.
home=$root/home/user
mkdir "$home/project" && cp -r tests/install/CMakeLists.txt docs/examples/check.cmake docs/examples/0* "$home/project"
{
  printf '// Prints:\n' && sed -n 's|^step  *[0-9]*  loss |//   &|p' README.md
  # shellcheck disable=SC2016
  sed -n '/^```cpp$/,/^```$/ { /^```/d; p }' README.md
} >"$home/project/readme.cpp"
chown -R 1000:1000 "$home/project"

# uses PROGRAM BY [cmake's arguments]: configured and run; the time is that of compiling and linking it.
uses() {
  local build=project/${1//\//-}-$2
  own_job logged "$work/log" user cmake -S project -B "$build" -GNinja -DCMAKE_BUILD_TYPE=Release -DRINGTAPE_BY="$2" \
    -DSOURCES="/home/user/project/$1.cpp" -DCHECK=/home/user/project/check.cmake "${@:3}" ||
    { tail -n 40 "$work/log" >&2 && die "$1, $2: cmake fails"; }
  step "$1, $2" user cmake --build "$build"
  own_job logged "$work/log" user ctest --test-dir "$build" --output-on-failure --no-tests=error ||
    { tail -n 40 "$work/log" >&2 && die "$1, $2: fails"; }
}
for program_of_user in readme 05_own_op 02_mlp 04_two_ranks 08_own_tool 09_own_kernels/main; do
  uses $program_of_user package
done
uses 08_own_tool static
step "08_own_tool train --data stripes" user project/08_own_tool-package/08_own_tool train --data stripes --epochs 1
# shellcheck disable=SC2016 # expanded there
step "05_own_op, pkg-config" user sh -c 'c++ -O1 project/05_own_op.cpp -o own_op $(pkg-config --cflags --libs ringtape)'
step "it runs" user cmake -DPROGRAM=/home/user/own_op -DSOURCE=project/05_own_op.cpp -P project/check.cmake

if $sources; then
  mkdir "$root/ringtape"
  git ls-files -z | tar -c --null -T - | tar -x --no-same-owner -C "$root/ringtape"
  step "setup.sh build" inside ./setup.sh build
  own=(-DRINGTAPE_SOURCE=/ringtape -DRINGTAPE_ISAS=best -DRINGTAPE_CUDA=OFF -DCMAKE_UNITY_BUILD=ON)
  uses readme fetch "${own[@]}"
  uses 05_own_op subdirectory "${own[@]}"
fi

step "apt remove" apt remove ringtape ringtape-dev
left=$(find "$root/usr" "$root/etc" -name '*ringtape*' ! -name 99ringtape)
[[ ! $left ]] || die "apt remove leaves: $left"
if inside ldconfig -p | grep ringtape; then die "ldconfig still knows libringtape"; fi
