#!/usr/bin/env bash
# Does what package/Dockerfile says, without Docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh
# shellcheck source=tests/fresh_system.sh
source tests/fresh_system.sh

usage() {
  cat <<'USAGE'
Usage: tests/install/dockerfile.sh

Executes the lines of package/Dockerfile in fresh systems (debootstrap, as root), one for each stage, then its entry
point as its user: doctor, and a short training. It compiles ringtape for all instruction sets: 15 minutes of two cores.
Variables: TMPDIR; RINGTAPE_DEBIAN_MIRROR [that of this machine's apt]; CMAKE_BUILD_PARALLEL_LEVEL is passed on. Exit
status: 0 all passed, 1 something failed, 2 usage, 77 skipped.
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit ;;
  ?*) die "unknown argument '$1'; tests/install/dockerfile.sh --help lists all" 2 ;;
esac
needs_fresh_systems
work=$(realpath "$(mktemp -d -t ringtape-dockerfile-XXXXXX)")
trap 'set +e; remove "$work"' EXIT
if_interrupted="the systems it made are removed"

# What the stages have in common: $stage, the folder of the current one; $user and $folder in it.
within() { in_system "$stage" runuser -u "$user" -- sh -c "cd '$folder' && $1"; }
from() { # IMAGE [AS NAME]
  [[ $1 =~ ^debian:([a-z]+)(-slim)?$ ]] || { echo "expected an image of Debian" && return 1; }
  stage=$work/${3:-last} user=root folder=/
  own_job make_system "${BASH_REMATCH[1]}" "$stage"
}
copy() { # [--from=STAGE] SOURCE TARGET
  if [[ $1 == --from=* ]]; then
    # shellcheck disable=SC2086 # a pattern
    cp -r "$work/${1#--from=}"$2 "$stage$3"
  else
    [[ "$1 $2" == ". ." ]] || { echo "expected the whole tree" && return 1; }
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - .git | tar -x --no-same-owner -C \
      "$stage$folder"
  fi
}
workdir() { folder=$1 && mkdir -p "$stage$1"; }
execute() { # LINE
  local words
  read -ra words <<<"$1"
  case "${words[0]}" in
    FROM) from "${words[@]:1}" ;;
    COPY) copy "${words[@]:1}" ;;
    RUN) within "${1#RUN }" ;;
    USER) user=${words[1]} ;;
    WORKDIR) workdir "${words[1]}" ;;
    ENTRYPOINT) entry=$(sed -E 's/^ENTRYPOINT \["(.*)"\]$/\1/; s/", *"/ /g' <<<"$1") ;;
    *) echo "not known here" && return 1 ;;
  esac
}
stage='' user='' folder='' entry='' line=''
while IFS= read -r part || [[ $part ]]; do
  [[ $part != '#'* && $part ]] || continue
  line+=$part
  if [[ $line == *\\ ]]; then line=${line%\\} && continue; fi
  began=$SECONDS
  execute "$line" >"$work/log" 2>&1 </dev/null || {
    if [[ $line == FROM* ]] && of_mirror "$work/log"; then
      echo "dockerfile.sh: skipped: $(debian_mirror) cannot be reached (RINGTAPE_DEBIAN_MIRROR names another)"
      exit 77
    fi
    tail -n 30 "$work/log" >&2 && die "failed: $line"
  }
  printf '%5d s  %.100s\n' $((SECONDS - began)) "$line"
  line=''
done <package/Dockerfile

[[ $entry && $user != root ]] || die "no entry point, or its user is root"
within "$entry doctor"
within "$entry train --epochs 1 --strategy ddp --devices 2"
echo "the last stage has $(du -sxm --apparent-size "$stage" | cut -f1) MB"
