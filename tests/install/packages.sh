# shellcheck shell=bash
# For scripts, which source this file: the Debian packages of a build.

# find_packages FOLDER: $program and $development.
find_packages() {
  local version
  version=$(sed -nE 's/^project\(ringtape VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
  program=$(find "$1" -maxdepth 1 -name "ringtape_$version-*.deb" 2>/dev/null) || true
  development=$(find "$1" -maxdepth 1 -name "ringtape-dev_$version-*.deb" 2>/dev/null) || true
  [[ -f $program && -f $development ]] || die "$1 has no Debian packages; cmake --workflow --preset package makes them"
}
