# shellcheck shell=bash
# Functions for scripts, which source this file. A failure is told in one line, with what to do about it, where the
# cause is one of those known below (tests/quietly_test.sh). A script may set, for these lines:
setup_command=./setup.sh # what installs the packages it needs
build_size=              # what its build takes of the disk, such as "150 MB"
if_interrupted="start it again and it goes on where it stopped"

# die MESSAGE [STATUS]: prints one line with the script's name, and exits.
die() {
  printf '%s: error: %s\n' "${0##*/}" "$1" >&2
  exit "${2:-1}"
}

# own_job COMMAND...: runs it, with all that it starts, as a job of its own; SIGINT and SIGTERM end this job, then the
# script. The exit status is the command's.
own_job() {
  local status=0 job='' was=$-
  trap 'end_job "$job"; interrupted 130' INT
  trap 'end_job "$job"; interrupted 143' TERM
  set -m
  "$@" </dev/null &
  job=$!
  [[ $was == *m* ]] || set +m
  wait "$job" || status=$?
  trap - INT TERM
  return "$status"
}

# set_up PROGRAM WHAT: runs setup.sh. A SIGTERM is heeded when it is done: packages should not stay half installed.
set_up() {
  trap 'interrupted 143' TERM
  "$1" "$2"
  trap - TERM
}

# Where CXX names no compiler: a newer g++ than the system's, if that is too old (cmake/dependencies.cmake).
choose_compiler() {
  local version name
  [[ ! ${CXX:-} ]] && version=$(g++ -dumpversion 2>/dev/null) && ((${version%%.*} < 12)) || return 0
  for name in g++-{14,13,12}; do
    if command -v "$name" >/dev/null; then
      export CXX=$name
      return
    fi
  done
}

interrupted() { # STATUS
  [[ ! -t 1 ]] || printf '\r\033[K'
  printf '%s: interrupted; %s\n' "${0##*/}" "$if_interrupted" >&2
  exit "$1"
}

# The process of this id and all its descendants, Ninja's compilers, too, which are in process groups of their own.
with_descendants() {
  local stat rest fields pid more
  declare -A children=()
  for stat in /proc/[0-9]*/stat; do
    { read -r rest <"$stat"; } 2>/dev/null || continue # it has ended
    read -ra fields <<<"${rest##*) }"
    children[${fields[1]}]+=" ${rest%% *}"
  done
  more=("$1")
  while ((${#more[@]})); do
    pid=${more[0]}
    echo "$pid"
    read -ra fields <<<"${children[$pid]:-}"
    more=("${more[@]:1}" "${fields[@]}")
  done
}

# Ends a job with all its descendants; what is still there after 5 s is killed.
end_job() {
  local pids i
  trap '' INT TERM
  [[ $1 ]] || return 0
  mapfile -t pids < <(with_descendants "$1")
  {
    kill -TERM "${pids[@]}"
    for ((i = 0; i < 50; ++i)); do
      kill -0 -- "-$1" "${pids[@]}" || break # fails only if none of them is left
      sleep 0.1
    done
    ((i < 50)) || kill -KILL -- "-$1" "${pids[@]}"
    wait "$1"
  } 2>/dev/null || true
}

# quietly WHAT LOG COMMAND...: the output to a log; of that its last line on a terminal,
# and what went wrong if it fails. A log build/NAME.log is that of the build folder build/NAME.
quietly() {
  local what=$1 log=$2 began=$SECONDS status=0
  shift 2
  echo "${0##*/}: $what"
  { : >"$log"; } 2>/dev/null || die "$what failed: cannot write $log$(of_disk "${log%/*}")"
  if [[ -t 1 ]]; then
    own_job shown "$log" "$@" || status=1
    printf '\r\033[K'
  else
    own_job logged "$log" "$@" || status=1
  fi
  if ((status)); then
    explain "$what" "$log"
    grep -m1 -A30 '^FAILED: ' "$log" >&2 || tail -n 30 "$log" >&2
    die "$what failed; the whole output is in $log"
  fi
  echo "${0##*/}: done in $((SECONDS - began)) s"
}

logged() { "${@:2}" >"$1" 2>&1; } # LOG COMMAND...
shown() {
  local line
  "${@:2}" 2>&1 | tee "$1" | while IFS= read -r line; do printf '\r\033[K%.78s' "$line"; done
}

# Of a folder's disk: what is free, in KiB; and the same in words.
free_kib() { df -kP -- "$1" 2>/dev/null | awk 'NR == 2 { print $4 }'; }
of_disk() { printf '; its disk has %s MB free' "$(($(free_kib "$1" || echo 0) / 1024))"; }

# explain WHAT LOG: ends the script with one line if the log tells of a known cause.
explain() {
  local what=$1 log=$2 folder=${2%.log} at free least='' full='' missing=''
  says() { grep -qE "$1" "$log"; }
  for at in "${log%/*}" "${TMPDIR:-/tmp}" "${CCACHE_DIR:-}"; do # where compilers write; the fullest of the disks
    free=$([[ $at ]] && free_kib "$at") || continue
    if [[ $free ]] && { [[ ! $least ]] || ((free < least)); }; then least=$free full=$at; fi
  done
  # A log on the same disk may lack the message.
  if says 'No space left on device' || ((${least:-4096} < 4096)); then
    die "$what failed: the disk of $full is full ($((${least:-0} / 1024)) MB are free\
${build_size:+, a build takes about $build_size}); make room and start it again"
  fi
  if says 'Killed signal terminated program|terminated with signal 9|unable to execute command: Killed|^Killed$' ||
    says 'irtual memory exhausted|: out of memory|LLVM ERROR: out of memory'; then
    die "$what failed: too little memory for so many compilers; with fewer: CMAKE_BUILD_PARALLEL_LEVEL=1 $0"
  fi
  if says 'CMake [0-9.]+ or higher is required|Unrecognized "version" field|"cmakeMinimumRequired" version too'; then
    die "$what failed: this CMake is too old; 'pip install cmake' or Kitware's APT repository brings a newer one"
  fi
  # cmake/dependencies.cmake: of a compiler; and the names in the list of what was not found.
  at=$(grep -m1 -oE 'ringtape needs .*' "$log") || at=
  [[ ! $at ]] || die "$what failed: $at"
  if says '(^|[ :])cmake: (command )?not found'; then
    missing="no cmake"
  elif says 'unable to find a build program corresponding to "Ninja"|(^|[ :])ninja: (command )?not found'; then
    missing="no ninja"
  elif says 'No CMAKE_CXX_COMPILER could be found|Could not find compiler set in environment variable CXX' ||
    says 'is not a full path and was not found in the PATH'; then
    missing="no C++ compiler${CXX:+ $CXX}"
  elif says '^ *Not found:$'; then
    missing=$(sed -nE '/^ *Not found:$/,/^ *On Debian/ s/^ *([^ ]+) \(.*/\1/p' "$log" | paste -sd ' ')
    missing="no ${missing// /, }"
  fi
  [[ ! $missing ]] || die "$what failed: there is $missing; this installs what is missing: $setup_command"
  if says 'Does not match the generator used previously|does not match the source .* used to generate cache' ||
    says 'The current CMakeCache.txt directory .* is different than'; then
    die "$what failed: $folder was made elsewhere or by another generator; remove it: rm -r $folder"
  fi
}
