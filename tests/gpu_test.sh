#!/usr/bin/env bash
# What tests/gpu.sh does on machines of all kinds: its stages, their limits and the table of them. Nothing is built and
# no GPU is needed: nvidia-smi, cmake, ldd and ringtape's programs are made up.
# shellcheck disable=SC2016 # the made-up programs expand what is in their scripts
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset CXX CCACHE_DIR TMPDIR LD_LIBRARY_PATH CMAKE_PREFIX_PATH RINGTAPE_EMULATED_GPU RINGTAPE_DATA_DIR
failures=0 checks=0

expect() { # WHAT EXPECTED GOT
  checks=$((checks + 1))
  [[ $2 == "$3" ]] || { failures=$((failures + 1)) && printf '%s\n  expected: %s\n  got:      %s\n' "$@" >&2; }
}
contain() { # WHAT PART GOT
  checks=$((checks + 1))
  [[ $3 == *"$2"* ]] || { failures=$((failures + 1)) && printf '%s\n  expected: ...%s...\n  got: %s\n' "$@" >&2; }
}

# A tree with these scripts, and made-up programs in bin/, which go before the others.
mkdir -p tree/tests/cuda tree/.ci tree/bench/pytorch tree/tests/fixtures tree/docs bin
cp -r "$root"/tests/gpu.sh "$root"/tests/gpu tree/tests
cp "$root/.ci/quietly.sh" tree/.ci
cp "$root/bench/pytorch/gpu_step.py" tree/bench/pytorch
touch tree/tests/fixtures/make_resnet.py tree/docs/gpu-first-run.md tree/LICENSE
touch tree/tests/cuda/cuda_{kernels,conv}_test.cpp
fake() { printf '#!/bin/bash\n%s\n' "$2" >"bin/$1" && chmod +x "bin/$1"; } # NAME SCRIPT
PATH=$work/bin:$PATH
fake nvidia-smi 'echo "NVIDIA H200, 580.65.06, 9.0, 143771 MiB"'
fake nvcc 'echo "Cuda compilation tools, release 13.0, V13.0.88"'
fake strip 'exit 0'
fake ldd 'for p; do case $p in
  *ringtape) echo "	libfmt.so.9 => $WORK/libfmt.so.9 (0x1)"; cat "$WORK/missing" ;;
  *) echo "	libc.so.6 => /lib/libc.so.6 (0x2)" ;;
esac; done'
fake compute-sanitizer 'echo "========= COMPUTE-SANITIZER"
echo "$* with $RINGTAPE_CUDNN$RINGTAPE_CUBLAS" >>"$WORK/sanitized"'
python=$(command -v python3)
fake python3 '[[ $1 != -c || $2 != *"import sys, torch"* ]] || exit 1
exec '"$python"' "$@"'
export WORK=$work
touch missing libfmt.so.9

# cmake --build "makes" the programs, with a test that fails where NVIDIA's libraries are used. The names of tests end
# with $CHECKED, as those of the emulation do.
fake cmake 'echo "$*" >>"$WORK/cmake-calls"
[[ $1 == --build ]] || exit 0
mkdir -p "$2/bench" "$2/tests" && cp "$WORK/programs/ringtape" "$2" && cp "$WORK/programs/ops_bench" "$2/bench"
for name in cuda_{kernels,conv}_test; do cp "$WORK/programs/$name" "$2/tests/$name$CHECKED"; done'
cp bin/cmake cmake.before
mkdir programs
program() { printf '#!/bin/bash\n%s\n' "$2" >"programs/$1" && chmod +x "programs/$1"; }
program ops_bench 'echo "peak copy GB/s: 4321.5" >&2
for flag; do [[ $flag != --benchmark_out=* ]] || cat "$WORK/peaks" >"${flag#*=}"; done'
echo '{"context": {"dtype": "bf16", "peak copy GB/s": "4321.5"}, "benchmarks": []}' >peaks
program cuda_kernels_test 'printf "%s\n" "[  PASSED  ] 7 tests." "[  SKIPPED ] 2 tests, listed below:"'
program cuda_conv_test '[[ ! ${RINGTAPE_CUDNN:-} ]] || exit 0
printf "%s\n" "[ RUN      ] Conv.Wide" "conv_test.cpp:7: Failure" "[  FAILED  ] Conv.Wide (1 ms)" "[  FAILED  ] 1 test"
exit 1'
program ringtape 'case $1 in
  doctor) printf "%s\n" "CUDA         13.0" "cuDNN        9.19" "ok      copy" ;;
  bench) if [[ $2 == step ]]; then cat "$WORK/figures"; else echo "images  apart us  fused us  used"; fi ;;
  *)
    while (($#)); do
      [[ $1 != --run ]] || { mkdir -p "$2/exported" && echo w >"$2/exported/model.safetensors"; }
      shift
    done
    ;;
esac'
cat >figures <<'JSON'
{"model":"x","precision":"f32","device":"cuda","batch_size":1,"steps_per_s":1,"images_per_s":69000.5,"peak_bytes":1,\
"phases":{"forward_s":1,"backward_s":1,"optimizer_s":1}}
JSON
sed -i -z 's/\\\n//' figures # JSON on one line
export CHECKED=''

run() { # FLAG...: sets status, said, and stages: the table without times
  status=0
  said=$(tree/tests/gpu.sh --out "$work/report" "$@" 2>&1) || status=$?
  stages=$(sed -E 's/ +[0-9]+ s +/ /' report/stages.txt 2>/dev/null) || stages=''
}
of_stage() { grep -E "^[a-z]+ $1(:|\$)" <<<"$stages" || true; }

# All of it, in its order; each failure is one line.
run --time-limit 300
expect "a test that fails" 1 "$status"
expect "the first stages" "passed configure
passed build
passed warnings
passed libraries
passed doctor: CUDA 13.0, cuDNN 9.19
passed ceilings bf16: copy GB/s 4321
passed ceilings f32: copy GB/s 4321
passed step resnet18 bf16 512 cuda: 69000 images/s
passed step resnet18 bf16 128 cuda: 69000 images/s
passed step resnet18 bf16 2048 cuda: 69000 images/s
passed step resnet18-nograph bf16 128 cuda: 69000 images/s
passed step resnet18-own bf16 128 cuda: 69000 images/s
passed step resnet18-fused bf16 128 cuda: 69000 images/s
passed step resnet18-wgmma bf16 128 cuda: 69000 images/s
passed tune bf16 128
passed step resnet18-tuned bf16 128 cuda: 69000 images/s" "$(head -n 16 <<<"$stages")"
expect "PyTorch" "skipped pytorch resnet18 bf16 512: python3 has no torch with CUDA" "$(of_stage pytorch.*)"
expect "a failed test" "failed cuda_conv_test: exit status 1: [ FAILED ] Conv.Wide (1 ms)" "$(of_stage cuda_conv_test)"
expect "the others go on" "passed cuda_kernels_test: 7 tests, 2 tests skipped" "$(of_stage cuda_kernels_test)"
expect "without NVIDIA's libraries" "passed own cuda_conv_test" "$(of_stage "own cuda_conv_test")"
expect "the last stages" "passed resume bitwise|passed train mlp f32 shapes cpu|passed method swav shapes cuda" \
  "$(grep -E 'bitwise|mlp.*shapes cpu|swav' <<<"$stages" | paste -sd '|')"
expect "what sanitizers see" "" "$(grep -v -e 'cuda_blas_test.*with 01' -e 'with 00' sanitized || true)"
contain "the architecture of the GPU" "-DCMAKE_CUDA_ARCHITECTURES=90a" "$(cat cmake-calls)"
contain "the report" "| cuda_conv_test | failed |" "$(cat report/report.md)"
contain "the ceilings" "| bf16 | peak copy GB/s 4,322 |" "$(cat report/report.md)"
contain "the logs" "logs/doctor.log" "$(tar -tzf report/logs.tar.gz)"

# What fails, in one line of the table.
echo "	libcudnn.so.9 => not found" >missing
run --time-limit 100
expect "a missing library stops everything" \
  "1 passed warnings|failed libraries: exit status 1: libcudnn.so.9 => not found" \
  "$status $(tail -n 2 <<<"$stages" | paste -sd '|')"
: >missing
cp programs/ringtape ringtape.before
program ringtape '[[ $1 == doctor ]] || exit 0
echo "ok      cuda:0 kernel bf16       error 1.7e-03 of the norm, at most 4.0e-03"
echo "ringtape: error: cuda:0 product bf16: expected, came; CUDA 13.0" >&2 && exit 1'
run --time-limit 100 --parts steps
expect "a failed check" \
  "failed doctor: exit status 1: ringtape: error: cuda:0 product bf16: expected, came; CUDA 13.0" "$(of_stage doctor)"
expect "the steps all the same" "passed step resnet18 bf16 512 cuda" "$(of_stage 'step resnet18 bf16 512 cuda')"
program ringtape 'echo "step 3"; sleep 60'
began=$SECONDS
run --time-limit 19 --parts steps
expect "a limit that is hit" "failed doctor: stopped after N s; its last line: step 3" \
  "$(of_stage doctor | sed -E 's/after [0-9]+/after N/')"
expect "no time left" "skipped step resnet18 bf16 512 cuda: no time left" "$(of_stage 'step resnet18 bf16 512 cuda')"
expect "the time limit" true "$( ((SECONDS - began <= 19)) && echo true)"
cp ringtape.before programs/ringtape
fake compute-sanitizer 'case $* in
  *racecheck*kernels*) echo "========= Race reported between Write access at f()"; exit 86 ;;
  *initcheck*) echo "Error: Device not supported"; exit 1 ;;
esac'
run --time-limit 200 --parts sanitizers
contain "a race" "failed racecheck cuda_kernels_test: exit status 86: ========= Race reported between Write" "$stages"
contain "a tool that the device does not support" "skipped initcheck cuda_kernels_test: compute-sanitizer does not" \
  "$stages"
program cuda_kernels_test 'printf "%s\n" "[  PASSED  ] 0 tests." "[  SKIPPED ] 9 tests, listed below:"'
run --time-limit 100 --parts tests
expect "tests that find no GPU" "skipped cuda_kernels_test: 0 tests, 9 tests skipped" "$(of_stage cuda_kernels_test)"
program cuda_kernels_test 'printf "%s\n" "[  PASSED  ] 7 tests." "[  SKIPPED ] 2 tests, listed below:"'
fake cmake 'echo "CMake Error: no CUDA toolset found" && exit 1'
rm -rf tree/build
run --time-limit 100
contain "nothing was built" "failed configure: exit status 1: CMake Error: no CUDA toolset found" "$stages"
contain "nothing to run" "failed libraries: exit status 1: error: there is no $work/tree/build/cuda/ringtape" "$stages"

# Machines without a GPU, and usage.
for reason in 'there is no nvidia-smi' 'nvidia-smi: No devices were found'; do
  fake nvidia-smi 'echo "No devices were found"; exit 6'
  hidden=$PATH
  [[ $reason != *'no nvidia-smi' ]] || { rm bin/nvidia-smi && hash -r && PATH=$work/bin:/usr/bin:/bin; }
  run
  PATH=$hidden
  expect "$reason" "0 no CUDA device: $reason; skipped" "$status $said"
done
run --parts nothing
expect "--parts" "2 gpu.sh: error: --parts: unknown part in 'nothing'; --help lists all" "$status $said"
run --packed
expect "--packed in a tree" "2 gpu.sh: error: --packed: there are no packed programs here; tests/gpu.sh --pack FILE \
makes them, and a script unpacked with them runs them" "$status $said"

# The emulated programs in place of CUDA's need no GPU.
cp cmake.before bin/cmake
CHECKED=_checked run --time-limit 200 --parts steps,tests,trainings,methods --rehearse
contain "its work is little" "--batch-size 16 --device cuda --json --model mlp" "$(cat report/stages.tsv)"
expect "its trainings have few images" "" \
  "$(grep -P '/ringtape (train|pretrain) ' report/stages.tsv | grep -v -e '--train-size 640 --test-size 100$' || true)"
expect "--rehearse" "passed cuda_kernels_test: 7 tests, 2 tests skipped|passed own cuda_conv_test" \
  "$(of_stage '(cuda_kernels|own cuda_conv)_test' | paste -sd '|')"
contain "what the report says of them" "| programs | built here, emulated |" "$(cat report/report.md)"

# Packed programs, on a machine without a compiler.
: >cmake-calls
run --pack "$work/there/gpu.tar.xz" -DCMAKE_CUDA_ARCHITECTURES=100-real --revision 1b2c3d4
expect "--pack" "0 gpu.sh: $work/there/gpu.tar.xz: " "$status $(tail -n 1 <<<"$said" | sed 's/xz: .*/xz: /')"
contain "other architectures" "-DCMAKE_CUDA_ARCHITECTURES=90a-real -DCMAKE_CUDA_ARCHITECTURES=100-real" \
  "$(cat cmake-calls)"
contain "what is built" "--target ringtape_binary ops_bench cuda_conv_test cuda_kernels_test" "$(cat cmake-calls)"
fake nvidia-smi 'echo "NVIDIA H200, 580.65.06, 9.0, 143771 MiB"'
fake cmake 'echo "there is no cmake"; exit 1'
python3 -m tarfile -e there/gpu.tar.xz there
expect "the packed libraries" "libfmt.so.9" "$(cd there/ringtape-gpu/lib && echo *)"
mv tree not-there
mv there/ringtape-gpu tree
sed -i '2i [[ $LD_LIBRARY_PATH == */tree/lib:* ]] || exit 9' tree/programs/ringtape
fake python3 'case "$1 ${2:-}" in
  "-c "*"import sys, torch"*) exit ;;
  bench/pytorch/gpu_step.py*)
    [[ ! $LD_LIBRARY_PATH ]] && [[ $("$3" doctor) ]] || exit 9
    echo "  512      69000    1200      62000  1.11x    1500      78000  0.88x    1400"
    exit
    ;;
esac
exec '"$python"' "$@"'
run --time-limit 200 --parts steps,tests,pytorch
expect "PyTorch beside packed programs, without their libraries" \
  "passed pytorch resnet18 bf16 512: 69000 images/s; eager 62000 (1.11x), compile 78000 (0.88x)" \
  "$(of_stage 'pytorch resnet18 bf16 512')"
expect "packed programs" "passed libraries|passed doctor: CUDA 13.0, cuDNN 9.19" \
  "$(head -n 2 <<<"$stages" | paste -sd '|')"
contain "the package's revision" "| revision | 1b2c3d4 |" "$(cat report/report.md)"
expect "packed tests" "failed cuda_conv_test: exit status 1: [ FAILED ] Conv.Wide (1 ms)" "$(of_stage cuda_conv_test)"
rm -r tree && mv not-there tree

((failures == 0)) || { echo "gpu_test.sh: $failures of $checks checks failed" >&2 && exit 1; }
echo "gpu_test.sh: $checks checks passed"
