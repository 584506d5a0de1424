# shellcheck shell=bash
# shellcheck disable=SC2034 # variables of the scripts
# For scripts, which source this file: what `cmake --workflow --preset package` has built.

# packages_argument "$@": $packages, the folder that --packages names. The script's usage() is what --help prints.
packages_argument() {
  packages=build/package
  while (($#)); do
    case "$1" in
      -h | --help) usage && exit ;;
      --packages)
        [[ ${2:-} ]] || die "--packages: needs a folder" 2
        packages=$2 && shift
        ;;
      *) die "unknown argument '$1'; $0 --help lists all" 2 ;;
    esac
    shift
  done
}

# find_packages FOLDER: $program and $development.
find_packages() {
  local version
  version=$(sed -nE 's/^project\(ringtape VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
  program=$(find "$1" -maxdepth 1 -name "ringtape_$version-*.deb" 2>/dev/null) || true
  development=$(find "$1" -maxdepth 1 -name "ringtape-dev_$version-*.deb" 2>/dev/null) || true
  [[ -f $program && -f $development ]] || die "$1 has no Debian packages; cmake --workflow --preset package makes them"
}
