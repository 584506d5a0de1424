#!/usr/bin/env bash
# Installs the wheel as a user does, and trains with it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh
# shellcheck source=tests/install/packages.sh
source tests/install/packages.sh

usage() {
  cat <<'USAGE'
Usage: tests/install/wheel.sh [--packages FOLDER]

Installs the wheel into a new environment, trains with it and removes it: it needs no library of the system but those
that every Linux has, and wrong ones in LD_LIBRARY_PATH do not matter. auditwheel looks at it, where that is installed.
Prints how long the program takes to start. Without Python's module venv it is skipped.
  --packages FOLDER  what `cmake --build --preset package --target wheel` has made [build/package]
USAGE
}

packages_argument "$@"
wheel=$(find "$packages" -maxdepth 1 -name 'ringtape-*.whl' 2>/dev/null) || true
[[ -f $wheel ]] || die "$packages has no wheel, or several; cmake --build --preset package --target wheel makes it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! python3 -m venv "$work/venv" >"$work/log" 2>&1; then
  echo "wheel.sh: skipped: there is no python3-venv" && exit
fi

quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2 && die "failed: $*"; }; }
pip() { quietly "$work/venv/bin/python" -m pip --disable-pip-version-check "$@"; }
pip install --no-index "$wheel"
ringtape=$work/venv/bin/ringtape
others=$(ldd "$ringtape" | sed -nE 's/^\s*(\S+) => (\S+).*/\1 \2/p' | grep -v " $work/" | cut -d' ' -f1)
others=$(grep -vxE 'lib(c|m|stdc\+\+|gcc_s|z)\.so\.[0-9]+' <<<"$others" | paste -sd ' ') || true
[[ ! $others ]] || die "the installed program takes from the system: $others"
version=$("$work/venv/bin/python" -c 'import ringtape; print(ringtape.run("--version"))')
[[ $version == "$("$ringtape" --version)"* ]] || die "the module does not find the program"
mkdir "$work/broken" && for library in libfmt.so.9 libcrypto.so.3; do echo >"$work/broken/$library"; done
quietly env LD_LIBRARY_PATH="$work/broken" "$ringtape" doctor
(cd "$work" && quietly env -i "$ringtape" train --epochs 1 --strategy ddp --devices 2 --run short)
[[ -s $work/runs/short/exported/model.safetensors ]] || die "the training has left no weights"
for file in docs/tutorial.md docs/examples/02_mlp.cpp configs/fine_tune.toml; do
  [[ -s $work/venv/share/doc/ringtape/$file ]] || die "not installed: share/doc/ringtape/$file"
done
ln -s "$ringtape" "$work/link" && quietly "$work/link" --version # as pipx does
start=$(python3 - "$ringtape" <<'TIME'
import statistics, subprocess, sys, time
def once():
    begin = time.perf_counter()
    subprocess.run([sys.argv[1], "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin
print(f"{1e3 * statistics.median([once() for _ in range(20)]):.1f} ms")
TIME
)
installed=$(du -sc --apparent-size -B1 "$ringtape" "$work/venv/lib/ringtape" | awk 'END { printf "%.1f MB", $1 / 1e6 }')
pip uninstall --yes ringtape
left=$(find "$work/venv" -name '*ringtape*')
[[ ! $left ]] || die "pip uninstall leaves: $left"
printf '%s: %.1f MB, installed %s; ringtape --help takes %s, the median of 20\n' "${wheel##*/}" \
  "$(stat -c %s "$wheel")e-6" "$installed" "$start"
if command -v auditwheel >/dev/null; then
  tag=${wheel##*-none-}
  [[ $(auditwheel show "$wheel" | tr '\n' ' ') == *"the following platform tag: \"${tag%.whl}\"."* ]] ||
    die "auditwheel does not find ${tag%.whl}; auditwheel show $wheel says why"
fi
