# shellcheck shell=bash
# Functions for scripts, which source this file.

# die MESSAGE [STATUS]: prints one line with the script's name, and exits.
die() {
  printf '%s: error: %s\n' "${0##*/}" "$1" >&2
  exit "${2:-1}"
}

# quietly WHAT LOG COMMAND...: the output to a log; of that its last line on a terminal,
# and what went wrong if it fails.
quietly() {
  local what=$1 log=$2 began=$SECONDS status=0
  shift 2
  echo "${0##*/}: $what"
  if [[ -t 1 ]]; then
    "$@" 2>&1 </dev/null | tee "$log" | while IFS= read -r line; do printf '\r\033[K%.78s' "$line"; done || status=1
    printf '\r\033[K'
  else
    "$@" >"$log" 2>&1 </dev/null || status=1
  fi
  if ((status)); then
    grep -m1 -A30 '^FAILED: ' "$log" >&2 || tail -n 30 "$log" >&2
    die "$what failed; the whole output is in $log"
  fi
  echo "${0##*/}: done in $((SECONDS - began)) s"
}
