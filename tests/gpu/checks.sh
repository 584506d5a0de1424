# shellcheck shell=bash
# shellcheck disable=SC2154,SC2317 # variables of gpu.sh; beside() calls what looks unreachable
# The stages of tests/gpu.sh that test and measure. tests/gpu/report.py parses their names.

# What a copy and a matrix product reach: the ceilings for all that follows.
ceilings() {
  local dtype
  for dtype in bf16 f32; do benchmark "ceilings $dtype" $dtype '^relu/.*/forward'; done
}

benchmark() { # NAME DTYPE FILTER
  stage "$1" 60 "$build/bench/ops_bench" --device cuda --dtype "$2" "--benchmark_filter=$(sized "$3" /16x784x128/)" \
    --benchmark_min_time=0.02 "--benchmark_out=$out/logs/${1// /-}.json" --benchmark_out_format=json
}

step() { # NAME PRECISION BATCH DEVICE FLAGS...
  local name=$1 dtype=$2 batch=$3 device=$4
  shift 4
  stage "step $name $dtype $batch $device" 40 "$build/ringtape" bench step --precision "$dtype" \
    --batch-size "$(sized "$batch" 16)" --device "$device" --json "$@"
}
resnet_step() { # PRECISION BATCH: as bench/pytorch/gpu_step.py measures it
  step resnet18 "$1" "$2" cuda --model "$(network)" --optimizer sgd --momentum 0.9 --weight-decay 5e-4
}
steps() {
  resnet_step bf16 512
  if $quick; then return; fi
  resnet_step bf16 128
  resnet_step bf16 2048
  local batch small=()
  if $rehearse; then small=(--model resnet18 --width 8 --pixels 8); fi
  # The same step in other ways: what the graph is worth, and our own kernels, one by one and fused.
  for batch in 128 512; do
    other_step nograph "$batch" --no-graph
    RINGTAPE_CUDNN=0 RINGTAPE_FUSED_CONV=0 other_step own "$batch"
    RINGTAPE_CUDNN=0 RINGTAPE_FUSED_CONV=1 other_step fused "$batch"
    RINGTAPE_CUDNN=0 RINGTAPE_FUSED_CONV=2 other_step wgmma "$batch"
    stage "tune bf16 $batch" 60 env RINGTAPE_CONV_PLANS="$out/logs/plans" \
      "$build/ringtape" bench tune --precision bf16 --batch-size "$(sized "$batch" 2)" "${small[@]}"
    RINGTAPE_CONV_PLANS="$out/logs/plans" other_step tuned "$batch"
  done
}
other_step() { # NAME BATCH FLAGS...
  local name=$1 batch=$2
  shift 2
  step "resnet18-$name" bf16 "$batch" cuda --model "$(network)" --optimizer sgd --momentum 0.9 --weight-decay 5e-4 "$@"
}

# The same step in PyTorch, eager and compiled, which has libraries of its own.
pytorch() {
  local name="pytorch resnet18 bf16 512" program=$build/ringtape ours=${LD_LIBRARY_PATH:-}
  local -x LD_LIBRARY_PATH=${other_libraries-$ours}
  if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    record "$name" skipped 0 "python3 has no torch with CUDA" ""
    return
  fi
  if $packed; then
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$ours" "$program" >"$scratch/ringtape"
    program=$scratch/ringtape
    chmod +x "$program"
  fi
  stage "$name" 150 python3 bench/pytorch/gpu_step.py --binary "$program" --batch-size 512 --rounds 1 \
    --variants eager compile --out "$out/logs/pytorch.json"
}

# cuda_tests PREFIX SECONDS PATTERN [UNLESS]: the test programs of that name, each in one process, four at a time: a
# context on the GPU and its libraries take longer than most tests. Only tests of measuring measure convolutions.
cuda_tests() {
  local prefix=$1 limit=$2 pattern=$3 unless=${4:-^$} test name
  for test in "$build"/tests/cuda_*_test"$checked"; do
    name=${test##*/} name=${name%"$checked"}
    [[ $name =~ $pattern && ! $name =~ $unless ]] || continue
    while (($(jobs -pr | wc -l) >= 4)); do wait -n; done
    RINGTAPE_CONV_PLANS=off beside stage "$prefix$name" "$limit" "$test" --gtest_print_time=0
  done
  wait
}
tests() {
  local name ranks='^cuda_(cli|ipc)_test$' # several processes each, with deadlines: alone
  cuda_tests "" 150 . "$ranks"
  for name in cli ipc; do cuda_tests "" 150 "^cuda_${name}_test$"; done
  # Without NVIDIA's libraries: our own convolutions and products.
  RINGTAPE_CUDNN=0 RINGTAPE_CUBLAS=0 cuda_tests "own " 60 '^cuda_(conv|matmul|ops)_test$'
}

# sanitize TOOL SECONDS TEST [FILTER]. Uses ringtape's own matrix products and convolutions, not those of the libraries.
sanitize() {
  local tool=$1 limit=$2 test=$3 filter=${4:-*}
  RINGTAPE_CUDNN=0 RINGTAPE_CUBLAS=$([[ $test == cuda_blas_test ]] && echo 1 || echo 0) \
    stage "$tool $test" "$limit" compute-sanitizer --tool "$tool" --error-exitcode 86 --report-api-errors no \
    --print-limit 20 "$build/tests/$test$checked" "--gtest_filter=$filter" --gtest_brief=1
}

sanitizers() {
  local limit=$(((deadline - SECONDS) / 4)) tool
  ((limit > 60)) || limit=60
  if ! command -v compute-sanitizer >/dev/null; then
    record compute-sanitizer skipped 0 "not installed" ""
    return
  fi
  beside sanitize memcheck $limit cuda_kernels_test
  beside sanitize memcheck $limit cuda_matmul_test
  beside sanitize memcheck $limit cuda_reduce_test
  if ! $quick; then
    beside sanitize memcheck $limit cuda_ops_test '*_cpu:*_layouts'
    beside sanitize memcheck $limit cuda_runtime_test
    beside sanitize memcheck $limit cuda_blas_test
    beside sanitize memcheck $limit cuda_train_test '*WithSgd'
    wait
    limit=$((limit * 2 / 3))
    for tool in racecheck initcheck synccheck; do
      beside sanitize $tool $limit cuda_kernels_test
      beside sanitize $tool $limit cuda_matmul_test
      beside sanitize $tool $limit cuda_reduce_test
      beside sanitize $tool $limit cuda_tensor_cores_test
      beside sanitize $tool $limit cuda_conv_norm_test
    done
    beside sanitize racecheck $limit cuda_ops_test '*_cpu'
  fi
  wait
}

benchmarks() {
  local dtype batch device method filter=. small=()
  if $rehearse; then small=(--model mlp --jitter 0 --gray 0); fi
  if $quick; then filter='^(add|mul|relu|sum|softmax|cross_entropy|linear|matmul)/'; fi
  for dtype in bf16 f32; do benchmark "ops $dtype" $dtype "$filter"; done
  if $quick; then return; fi
  for batch in 128 512 2048; do resnet_step f32 $batch; done
  for method in simclr byol; do
    for dtype in bf16 tf32; do step $method $dtype 512 cuda --method $method "${small[@]}"; done
  done
  for batch in 16 128 4096; do
    for device in cuda cpu; do step mlp f32 $batch $device --model mlp; done
  done
}
