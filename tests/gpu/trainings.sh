# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu.sh
# The stages of tests/gpu.sh that train on a GPU. tests/gpu/report.py parses their names.

# ringtape COMMAND NAME SECONDS FLAGS...: one stage; its run has the stage's name. A rehearsal has few images.
ringtape() {
  local command=$1 name=$2 limit=$3 few=()
  shift 3
  if $rehearse; then few=(--train-size 640 --test-size 100); fi
  stage "$name" "$limit" "$build/ringtape" "$command" --json --seed 1 --run "$scratch/runs/${name// /-}" "$@" \
    "${few[@]}"
}

images() { # the data set for image networks
  if ! $rehearse && [[ -d ${RINGTAPE_DATA_DIR:-}/cifar-10-batches-bin ]]; then echo cifar10; else echo shapes; fi
}
numbers() {
  if $rehearse; then return; fi
  if compgen -G "${RINGTAPE_DATA_DIR:-/nowhere}/train-images*" >/dev/null || [[ -d ${RINGTAPE_DATA_DIR:-}/MNIST ]]; then
    echo mnist
  fi
}

trainings() {
  local data device precision sgd=(--optimizer sgd --lr 0.1 --momentum 0.9 --weight-decay 5e-4)
  data=$(images)
  # The first 50 steps on both devices, to compare the losses.
  for device in cuda cpu; do
    ringtape train "curve resnet18 f32 $data $device" 120 --model "$(network)" --data "$data" --device $device \
      --overwrite --epochs 1 --batch-size 64 --limit-train-batches 50 --limit-eval-batches 1 --log-every 1 "${sgd[@]}" \
      --checkpoint-every 0
  done
  for precision in bf16 f32; do
    ringtape train "train resnet18 $precision $data cuda" 150 --model "$(network)" --data "$data" --device cuda \
      --precision $precision --overwrite --epochs 3 --batch-size 128 --schedule cosine --crop-padding 4 --flip \
      "${sgd[@]}"
  done
  resuming "$data" "${sgd[@]}"
  for data in shapes $(numbers); do
    for device in cuda cpu; do
      ringtape train "train mlp f32 $data $device" 60 --model mlp --data "$data" --epochs 3 \
        --batch-size 64 --device $device --overwrite
    done
  done
}

# Two epochs, and the second one resumed from the checkpoint after the first.
resuming() { # DATA FLAGS...
  local data=$1 weights=exported/model.safetensors
  local flags=(--model "$(network)" --data "$1" --device cuda --batch-size 128 --limit-train-batches 40
    --limit-eval-batches 2 --deterministic)
  shift
  ringtape train "resume at once" 60 "${flags[@]}" "$@" --epochs 2 --overwrite
  ringtape train "resume first" 60 "${flags[@]}" "$@" --epochs 1 --overwrite
  if ! mv "$scratch/runs/resume-first" "$scratch/runs/resume-second" 2>/dev/null; then
    record "resume bitwise" skipped 0 "the first training has no run" ""
    return
  fi
  ringtape train "resume second" 60 "${flags[@]}" "$@" --epochs 2 --resume
  stage "resume bitwise" 10 cmp "$scratch/runs/resume-at-once/$weights" "$scratch/runs/resume-second/$weights"
}

# One epoch of each self-supervised method, as in lightly's benchmark.
methods() {
  local data method flags=(--model "$(network)" --preset seed000 --device cuda --epochs 1 --overwrite)
  if $rehearse; then # the fourth step is one that a graph repeats
    flags+=(--batch-size 64 --limit-train-batches 6 --projection-hidden 128 --projection-dim 128)
  fi
  data=$(images)
  for method in moco simclr simsiam barlow_twins byol swav; do
    ringtape pretrain "method $method $data cuda" 120 --method $method --data "$data" "${flags[@]}"
  done
}
