#!/usr/bin/env bash
# Makes a folder with Debian's libraries for arm64, for cmake/aarch64.cmake and qemu-aarch64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=../.ci/quietly.sh
source .ci/quietly.sh

usage() {
  cat <<'USAGE'
Usage: tests/arm_root.sh [FOLDER]

Downloads the libraries that ./setup.sh names, for arm64, with all that they need, and unpacks them in FOLDER
(build/arm-root). Nothing is installed. The system must know the architecture:
  dpkg --add-architecture arm64 && apt-get update
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit ;;
  -*) die "unknown argument '$1'; tests/arm_root.sh --help explains" 2 ;;
esac
root=${1:-build/arm-root}
[[ ! -e $root ]] || die "$root exists; remove it first, or name another folder"
dpkg --print-foreign-architectures | grep -qx arm64 ||
  die "apt-get knows no packages for arm64: dpkg --add-architecture arm64 && apt-get update"

# Headers alone are in packages for all architectures; of the others those that they need, too.
mapfile -t libraries < <(./setup.sh --list | grep -E -- '-dev$|^libjs-')
wanted=() roots=(libc6-dev:arm64 libstdc++6:arm64)
for library in "${libraries[@]}"; do
  case "$(apt-cache show --no-all-versions "$library")" in
    *"Architecture: all"*) wanted+=("$library") ;;
    *) roots+=("$library:arm64") ;;
  esac
done
mapfile -t -O "${#wanted[@]}" wanted < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
  --no-breaks --no-replaces --no-enhances "${roots[@]}" | grep -E '^[^ ]*:arm64$' | sort -u)

mkdir -p "$(dirname "$root")"
made=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$made"' EXIT
mkdir "$made/packages"
(cd "$made/packages" && apt-get -q -o APT::Sandbox::User=root download "${wanted[@]}" >log 2>&1) ||
  { tail -n 5 "$made/packages/log" >&2 && die "apt-get could not download all of: ${wanted[*]}"; }
for package in "$made"/packages/*.deb; do dpkg-deb -x "$package" "$made"; done
rm -r "$made/packages"
# Debian's own libraries are found through links, some of which are absolute.
find "$made" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln -sfn --relative "$made$target" "$link"
done
chmod 755 "$made"
mv "$made" "$root"
echo "arm_root.sh: $root has ${#wanted[@]} packages for arm64"
