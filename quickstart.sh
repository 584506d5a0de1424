#!/usr/bin/env bash
# From a fresh checkout to a trained network: installs what is missing, builds `ringtape`, trains.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: ./quickstart.sh [--data-dir DIR] [--no-setup] [-- FLAGS]

Installs the missing Debian packages, builds build/release/ringtape and trains a small network: on MNIST where its files
are given, else on generated images. Takes a few minutes the first time, seconds after that; the run of an earlier quick
start is replaced.
  --data-dir DIR  folder with MNIST's four idx files, .gz or not [RINGTAPE_DATA_DIR]
  --no-setup      install nothing
  -- FLAGS        for `ringtape train`, such as: -- --epochs 10 --hidden 256
USAGE
}

readonly release_size="150 MB" # of build/release, about

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=.ci/quietly.sh
source "$root/.ci/quietly.sh"

setup=true data_dir=${RINGTAPE_DATA_DIR:-} why=RINGTAPE_DATA_DIR
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --data-dir)
      [[ ${2:-} ]] || die "--data-dir: needs a folder" 2
      data_dir=$2 why=--data-dir && shift
      ;;
    --data-dir=?*) data_dir=${1#*=} why=--data-dir ;;
    --no-setup) setup=false ;;
    --) shift && break ;;
    *) die "unknown argument '$1'; ./quickstart.sh --help lists all, flags for the training go after --" 2 ;;
  esac
  shift
done

# Checked now, not after the build.
if [[ $data_dir ]]; then
  [[ -d $data_dir ]] || die "$why: there is no folder $data_dir"
  compgen -G "$data_dir/train-images*" >/dev/null || compgen -G "$data_dir/*/train-images*" >/dev/null ||
    compgen -G "$data_dir/MNIST/raw/train-images*" >/dev/null ||
    die "$why: $data_dir has no train-images-idx3-ubyte or train-images-idx3-ubyte.gz"
fi

here=$root/ # prefix of printed commands, so that they can be copied
[[ $PWD == "$root" ]] && here=

build() {
  (cd "$root" && cmake --preset release) &&
    cmake --build "$root/build/release" --target ringtape_binary --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
}

if $setup; then set_up "$root/setup.sh" build; fi
mkdir -p "$root/build"
choose_compiler
setup_command="${here:-./}setup.sh build" build_size=$release_size
quietly "building ${here}build/release/ringtape" "${here}build/release.log" build

if [[ $data_dir ]]; then
  echo "quickstart.sh: training on MNIST from $data_dir ($why)"
  data=(--data mnist --data-dir "$data_dir")
else
  printf 'quickstart.sh: training on shapes, generated images, as neither %s nor %s names a folder with MNIST\n' \
    --data-dir RINGTAPE_DATA_DIR
  data=(--data shapes)
fi
run=${here}runs/quickstart named=(--overwrite)
for ((i = 1; i <= $#; ++i)); do
  case "${!i}" in
    --run) next=$((i + 1)) && run=${!next:-} named=() ;;
    --run=*) run=${!i#*=} named=() ;;
  esac
done
shown=$run
[[ $run == */* ]] || shown=runs/$run
echo
"$root/build/release/ringtape" train --model mlp "${data[@]}" --optimizer adam --lr 1e-3 --batch-size 64 \
  --epochs 5 --seed 1 --run "$run" "${named[@]}" "$@" &
# A signal stops the training, which says so itself. It ignores a second one within a second: Ctrl-C goes to it, too.
trap 'waiting=true; kill -TERM $! 2>/dev/null || true' INT TERM
waiting=true
while $waiting; do
  waiting=false status=0
  wait $! || status=$?
done
trap - INT TERM
((status == 0)) || exit "$status"

with_mnist=
if [[ ! $data_dir ]]; then with_mnist="; with MNIST: ${here:-./}quickstart.sh --data-dir DIR"; fi
cat <<NEXT

The run is in $shown: config.toml, train.log, metrics.csv, report.html and exported/model.safetensors.
  look at it        ${here}build/release/ringtape view, or $shown/report.html in a browser
  test it again     ${here}build/release/ringtape evaluate $shown
  change something  ${here}build/release/ringtape train ${data[*]} --hidden 256 --schedule cosine --run wider
  all there is      ${here}build/release/ringtape --help$with_mnist
NEXT
