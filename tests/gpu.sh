#!/usr/bin/env bash
# For a machine with a GPU: builds the CUDA backend, runs its tests, checks it with sanitizers and measures it.
# shellcheck disable=SC2317 # traps and beside() call what looks unreachable
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=.ci/quietly.sh
source "$root/.ci/quietly.sh"

usage() {
  cat <<'USAGE'
Usage: tests/gpu.sh [--deps FOLDER] [--out FOLDER] [--time-limit SECONDS] [--quick] [-DNAME=VALUE ...]

Builds everything for this machine's GPU in build/cuda, runs the CUDA tests, also under compute-sanitizer, the
benchmarks and trainings on GPU and CPU. A stage that fails does not stop the others. FOLDER gets report.md,
results.json and logs.tar.gz. Data sets other than the generated one are looked for in RINGTAPE_DATA_DIR.
  --parts LIST          of it, besides building: tests, sanitizers, benchmarks, trainings, methods, with commas between
                        them [all of these], and cpu: the tests that need no GPU; with what a command may take limited,
                        several share the work
  --deps FOLDER         libraries that tests/gpu_dependencies.sh gathered
  --out FOLDER          for the report [build/gpu-report]
  --build FOLDER        to build in [build/cuda]
  --time-limit SECONDS  for everything; stages for which none is left are skipped [540]
  --revision TEXT       what is tested, for the report [git describe]
  --quick               the tests of the CUDA backend, a short memcheck and a few benchmarks alone
  -DNAME=VALUE          for CMake
Exit status: 0 all passed, or there is no CUDA device; 1 a stage failed; 2 usage.
USAGE
}

deps='' out=$root/build/gpu-report build=$root/build/cuda time_limit=540 revision='' quick=false
parts=tests,sanitizers,benchmarks,trainings,methods definitions=() command="tests/gpu.sh $*"
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --quick) quick=true ;;
    -D?*=*) definitions+=("$1") ;;
    --deps | --out | --build | --time-limit | --revision | --parts)
      [[ ${2:-} ]] || die "$1: needs a value" 2
      case "$1" in
        --deps) deps=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        --build) build=$(realpath -m "$2") ;;
        --time-limit) time_limit=$2 ;;
        --revision) revision=$2 ;;
        --parts) parts=$2 ;;
      esac
      shift
      ;;
    *) die "unknown argument '$1'; --help lists all" 2 ;;
  esac
  shift
done
[[ $time_limit =~ ^[1-9][0-9]*$ ]] || die "--time-limit: expected seconds, got '$time_limit'" 2
[[ $parts =~ ^((tests|sanitizers|benchmarks|trainings|methods|cpu)(,|$))+$ ]] ||
  die "--parts: unknown part in '$parts'; --help lists all" 2
[[ -z $deps || -d $deps/usr ]] || die "--deps: there is no $deps/usr; tests/gpu_dependencies.sh $deps makes it" 2

PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
no_device() {
  echo "no CUDA device: $1; skipped"
  exit 0
}
command -v nvidia-smi >/dev/null || no_device "there is no nvidia-smi"
gpu=$(nvidia-smi --id=0 --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader 2>&1) ||
  no_device "nvidia-smi: ${gpu%%$'\n'*}"
IFS=, read -r gpu_name driver capability memory <<<"${gpu//, /,}"
[[ $capability =~ ^[0-9]+\.[0-9]+$ ]] || no_device "nvidia-smi: $gpu"

cd "$root" || exit
export LC_ALL=C.UTF-8 # decimal points
deadline=$((SECONDS + time_limit - 10)) # the report needs some of it
work=$build/gpu-stages
cores=$(nproc)
rm -rf "$work"
mkdir -p "$work/logs" "$out" || exit
[[ -z $deps ]] || export CMAKE_PREFIX_PATH=$deps/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}

# record NAME RESULT SECONDS NOTE COMMAND, where RESULT is passed, failed, incomplete or skipped
record() {
  (IFS=$'\t' && printf '%s\n' "$*") >>"$work/stages.tsv"
  printf 'gpu.sh: %-10s %4.0f s  %s%s\n' "$2" "$3" "$1" "${4:+: $4}"
}

# stage NAME SECONDS COMMAND...: runs for at most SECONDS; writes the output to the logs.
stage() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) began=$EPOCHREALTIME
  local log=$work/logs/${1// /-}.log status note='' result=failed
  shift 2
  ((limit <= left)) || limit=$left
  if ((limit < 5)); then
    record "$name" skipped 0 "no time left" "$*"
    return 1
  fi
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
  wait $! # a signal interrupts it
  status=$?
  case $status in
    0) result=passed ;;
    124 | 137) note="stopped after $limit s" ;;
    *) note="exit status $status" ;;
  esac
  if [[ $1 == compute-sanitizer ]]; then
    if grep -q 'Device not supported' "$log"; then
      result=skipped note="compute-sanitizer does not support this machine's device"
    fi
    if [[ $note == stopped* ]] && ! grep -v COMPUTE-SANITIZER "$log" | grep '^========= [A-Z]' >/dev/null; then
      result=incomplete note+=", no error until then"
    fi
  fi
  record "$name" "$result" "$(awk "BEGIN { print $EPOCHREALTIME - $began }")" "$note" "$*"
  [[ $result == passed ]]
}

# version HEADER NAME...: the numbers of #define NAME number, joined by dots
version() {
  local header=$1 name numbers=()
  shift
  for name; do numbers+=("$(sed -nE "s/^#define $name +([0-9]+).*/\1/p" "$header" | head -n 1)"); done
  (IFS=. && echo "${numbers[*]}")
}

# Folders with headers of CUDA libraries: of the toolkit, the system and Python's wheels.
include_folders() {
  local nvcc
  nvcc=$(command -v nvcc) && echo "${nvcc%/bin/nvcc}/include"
  printf '%s\n' /usr/local/cuda/include /usr/include /usr/include/x86_64-linux-gnu
  python3 -c 'import importlib.util, glob
spec = importlib.util.find_spec("nvidia")
for folder in spec.submodule_search_locations if spec else []:
    print(*sorted(glob.glob(folder + "/*/include")), sep="\n")'
}
first_with() { # HEADER: the first of these folders that contains it
  local folder
  while IFS= read -r folder; do
    if [[ -f $folder/$1 ]]; then
      echo "$folder"
      return
    fi
  done < <(include_folders)
  return 1
}

describe_library() { # NAME HEADER MACRO...
  local name=$1 header=$2 folder found='not found'
  shift 2
  if folder=$(first_with "$header"); then found="$(version "$folder/$header" "$@"), $folder"; fi
  printf '%s\t%s\n' "$name" "$found"
}

describe_machine() {
  printf '%s\t%s\n' GPU "$gpu_name, $memory, compute capability $capability" driver "$driver" \
    CUDA "$(nvcc --version 2>/dev/null | sed -nE 's/.*release .*, V([0-9.]+).*/\1/p' || true)" \
    "C++ compiler" "$(c++ --version | head -n 1)" CMake "$(cmake --version | head -n 1)" \
    CPU "$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $cores cores" system "$(uname -sr)" \
    date "$(date -u +'%Y-%m-%d %H:%M UTC')" command "$command" \
    revision "${revision:-$(git describe --always --dirty 2>/dev/null || echo unknown)}"
  describe_library cuDNN cudnn_version.h CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL
  describe_library NCCL nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH
}

# For a toolkit without cuBLAS: uses the one of Python's wheel.
use_cublas_of_python() {
  local folder library
  folder=$(first_with cublasLt.h) || return 0
  case "$folder" in */nvidia/*/include) ;; *) return 0 ;; esac
  library=$(compgen -G "${folder%/include}/lib/libcublasLt.so*" | head -n 1) || return 0
  export CPLUS_INCLUDE_PATH=$folder${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  definitions=("-DCUDA_cublasLt_LIBRARY=$library" "${definitions[@]}")
}

report() { python3 "$root/tests/gpu_report.py" "$work" "$out" && tar -C "$work" -czf "$out/logs.tar.gz" logs; }

# cuda_tests PREFIX SECONDS PATTERN: the test programs of that name, each in one process, four at a time: a context on
# the GPU and its libraries take longer than most tests.
cuda_tests() {
  local prefix=$1 limit=$2 pattern=$3 test
  for test in "$build"/tests/cuda_*_test; do
    [[ ${test##*/} =~ $pattern ]] || continue
    while (($(jobs -pr | wc -l) >= 4)); do wait -n; done
    beside stage "$prefix${test##*/}" "$limit" "$test" --gtest_print_time=0
  done
  wait
}

# sanitize TOOL SECONDS TEST [FILTER]. Uses ringtape's own matrix products and convolutions, not those of the libraries.
sanitize() {
  local tool=$1 limit=$2 test=$3 filter=${4:-*}
  RINGTAPE_CUDNN=0 RINGTAPE_CUBLAS=$([[ $test == cuda_blas_test ]] && echo 1 || echo 0) \
    stage "$tool $test" "$limit" compute-sanitizer --tool "$tool" --error-exitcode 86 --report-api-errors no \
    --print-limit 20 "$build/tests/$test" "--gtest_filter=$filter" --gtest_brief=1
}

sanitizers() {
  local limit=$(((deadline - SECONDS) * 4 / 10))
  ((limit < 150)) || limit=150
  if ! command -v compute-sanitizer >/dev/null; then
    record compute-sanitizer skipped 0 "not installed" ""
    return
  fi
  beside sanitize memcheck $limit cuda_kernels_test
  beside sanitize memcheck $limit cuda_matmul_test
  beside sanitize memcheck $limit cuda_reduce_test
  if ! $quick; then
    beside sanitize memcheck $limit cuda_ops_test '*EqualsTheCpu*:*TakesAnyLayout*'
    beside sanitize memcheck $limit cuda_runtime_test
    beside sanitize memcheck $limit cuda_blas_test
    beside sanitize memcheck $limit cuda_train_test '*WithSgd'
    wait
    limit=$((limit * 2 / 3))
    for tool in racecheck initcheck synccheck; do
      beside sanitize $tool $limit cuda_kernels_test
      beside sanitize $tool $limit cuda_matmul_test
      beside sanitize $tool $limit cuda_reduce_test
    done
    beside sanitize racecheck $limit cuda_ops_test '*EqualsTheCpu*'
  fi
  wait
}

benchmarks() {
  local dtype batch device method few=()
  if $quick; then few=('--benchmark_filter=^(add|mul|relu|sum|softmax|cross_entropy|linear|matmul)/'); fi
  for dtype in f32 bf16; do
    stage "ops $dtype" 90 "$build/bench/ops_bench" --device cuda --dtype $dtype --benchmark_min_time=0.05 "${few[@]}" \
      "--benchmark_out=$work/logs/ops-$dtype.json" --benchmark_out_format=json
  done
  for batch in 16 128 4096; do
    for device in cuda cpu; do step mlp f32 $batch $device --model mlp; done
  done
  if $quick; then return; fi
  for dtype in f32 bf16; do
    for batch in 128 512 2048; do step resnet18 $dtype $batch cuda --model resnet18; done
    for method in simclr byol; do step $method $dtype 512 cuda --method $method; done
  done
}
step() { # NAME PRECISION BATCH DEVICE FLAGS...
  local name=$1 dtype=$2 batch=$3 device=$4
  shift 4
  stage "step $name $dtype $batch $device" 40 "$build/ringtape" bench step --precision "$dtype" \
    --batch-size "$batch" --device "$device" --json "$@"
}

wants() { [[ ,$parts, == *,$1,* ]]; }
# shellcheck source=tests/gpu_trainings.sh
source "$root/tests/gpu_trainings.sh"

stop() {
  local running
  mapfile -t running <<<"$(jobs -p)"
  kill "${running[@]}" 2>/dev/null
  exit 1
}
beside() { (trap stop INT TERM; "$@") & }

finish() {
  trap - EXIT
  report || echo "gpu.sh: error: no report; the logs are in $work/logs" >&2
  [[ -f $out/report.md ]] && echo "gpu.sh: $out/report.md"
  if grep -qP '^[^\t]*\tfailed\t' "$work/stages.tsv"; then exit 1; fi
  exit "$1"
}
trap 'finish 1' EXIT
trap stop INT TERM

describe_machine >"$work/machine.tsv"
use_cublas_of_python
stage configure 90 cmake --preset cuda -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=${capability/./}" "${definitions[@]}"
stage build 360 cmake --build "$build" --parallel "$cores" -- -k 0
# A warning counts as a failure but stops nothing: other compilers have other warnings.
# shellcheck disable=SC2016
stage warnings 10 bash -c '! grep -E "warning( #[0-9]|[ :])" "$0"' "$work/logs/build.log"
if compgen -G "$build/tests/*_test" >/dev/null; then
  # ctest allows 5 s for this; libraries that were never loaded may take longer.
  # shellcheck disable=SC2016
  stage "list tests" 60 \
    bash -c 'for test in "$0"/tests/*_test; do "$test" --gtest_list_tests >/dev/null || exit; done' "$build"
  if wants tests; then
    cuda_tests "" 150 .
    # Without NVIDIA's libraries: our own convolutions and products.
    RINGTAPE_CUDNN=0 RINGTAPE_CUBLAS=0 cuda_tests "own " 60 '^cuda_(conv|matmul|ops)_test$'
  fi
  if wants cpu; then
    beside stage "other tests" 300 ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 60 \
      --parallel "$cores" -E '(^|/)[Cc]uda'
  fi
  if wants sanitizers; then sanitizers; fi
  wait
  if wants benchmarks; then benchmarks; fi
  if ! $quick && wants trainings; then trainings; fi
  if ! $quick && wants methods; then methods; fi
fi
finish 0
