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
(build/arm-root). Nothing is installed, and apt-get's own lists stay as they are.
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit ;;
  -*) die "unknown argument '$1'; tests/arm_root.sh --help explains" 2 ;;
esac
root=${1:-build/arm-root}
[[ ! -e $root ]] || die "$root exists; remove it first, or name another folder"
mkdir -p "$(dirname "$root")"
made=$(realpath "$(mktemp -d "$root.XXXXXX")")
trap 'rm -rf "$made"' EXIT

# apt-get as on a machine for arm64 that has no package yet, with this system's sources and keys.
mkdir -p "$made"/apt/{lists,archives}/partial && touch "$made/apt/status"
apt() {
  apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User="$(id -un)" \
    -o Dir::State="$made/apt" -o Dir::State::status="$made/apt/status" -o Dir::Cache="$made/apt" \
    -o Debug::NoLocking=true "$@" >"$made/apt/log" 2>&1
}
mapfile -t libraries < <(./setup.sh --list | grep -E -- '-dev$|^libjs-')
apt update || true # a source without arm64 matters only if it has one of the packages
apt install --no-install-recommends --download-only libc6-dev libstdc++6 "${libraries[@]}" ||
  die "apt-get could not download the libraries for arm64: $(grep -m1 '^E:' "$made/apt/log")"
packages=("$made"/apt/archives/*.deb)
for package in "${packages[@]}"; do dpkg-deb -x "$package" "$made"; done
rm -r "$made/apt"
# Debian's own libraries are found through links, some of which are absolute.
find "$made" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln -sfn --relative "$made$target" "$link"
done
chmod 755 "$made"
mv "$made" "$root"
echo "arm_root.sh: $root has ${#packages[@]} packages for arm64"
