# shellcheck shell=bash
# Fresh Debian systems in a folder, for scripts, which source this file after .ci/quietly.sh.

# Which mirror: that of this machine's apt.
debian_mirror() {
  local mirror=${RINGTAPE_DEBIAN_MIRROR:-}
  # shellcheck disable=SC2016 # expanded by apt-get
  [[ $mirror ]] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
    'Label: Debian' 2>/dev/null | head -n 1) || true
  echo "${mirror:-http://deb.debian.org/debian}"
}

# Exits with 77 where there can be none.
needs_fresh_systems() {
  local skipped="${0##*/}: skipped:"
  ((EUID == 0)) || { echo "$skipped only root can make a system of its own" && exit 77; }
  command -v debootstrap >/dev/null ||
    { echo "$skipped there is no debootstrap (apt-get install debootstrap)" && exit 77; }
}

# make_system SYSTEM FOLDER: of the release SYSTEM, its smallest form.
make_system() {
  # debootstrap has no limit of its own for an unreachable mirror.
  debootstrap --variant=minbase "$1" "$2" "$(debian_mirror)" || return
  mount_system "$2" || return
  # A mirror that is a copy may be older than its files allow.
  printf '%s\n' 'Acquire::Check-Valid-Until "false";' 'Acquire::Check-Date "false";' \
    >"$2/etc/apt/apt.conf.d/99ringtape"
}
mount_system() { # FOLDER
  mount -t proc proc "$1/proc" && mount -t sysfs -o ro sysfs "$1/sys" && mount --rbind /dev "$1/dev" &&
    mount --make-rprivate "$1/dev" # or what is unmounted there is here, too
}

# of_mirror LOG: whether make_system failed since its mirror cannot be reached.
of_mirror() { grep -qE 'Failed getting release file|unable to resolve|Temporary failure|unreachable' "$1"; }

# in_system FOLDER COMMAND...: runs it there, in /ringtape if that is there.
in_system() {
  local folder=$1 variables=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 RINGTAPE_WERROR=ON) name
  shift
  for name in CMAKE_BUILD_PARALLEL_LEVEL CTEST_PARALLEL_LEVEL http_proxy; do
    if [[ ${!name:-} ]]; then variables+=("$name=${!name}"); fi
  done
  env -i "${variables[@]}" chroot "$folder" sh -c 'cd /ringtape 2>/dev/null; exec "$@"' sh "$@"
}

# Removes a folder, with all that runs in it and is mounted in it, the last first. Nothing is removed as long as
# something is mounted: it may be this machine's.
mounts() { awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac; }
remove() { # FOLDER
  local process mount
  for process in /proc/[0-9]*; do
    if [[ $(readlink "$process/root")/ == "$1"/* ]]; then kill -KILL "${process##*/}"; fi
  done 2>/dev/null
  while read -r mount; do umount "$mount" 2>/dev/null || umount --lazy "$mount"; done < <(mounts "$1")
  if [[ $(mounts "$1") ]]; then
    echo "${0##*/}: still mounted, so not removed: $1" >&2
  else
    rm -rf --one-file-system "$1"
  fi
}
