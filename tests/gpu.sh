#!/usr/bin/env bash
# For a machine with a GPU: builds the CUDA backend there, or brings its programs, and checks and measures it.
# shellcheck disable=SC2034,SC2154,SC2317 # variables and functions of the files in gpu/
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=.ci/quietly.sh
source "$root/.ci/quietly.sh"

usage() {
  cat <<'USAGE'
Usage: tests/gpu.sh [--out FOLDER] [--time-limit SECONDS] [--parts LIST] [--quick] [--deps FOLDER] [-DNAME=VALUE ...]
       tests/gpu.sh --pack FILE [-DNAME=VALUE ...]
       tests/gpu.sh --packed [--out FOLDER] [--time-limit SECONDS] [--parts LIST] [--quick]

Builds the programs for this machine's GPU and runs, in the order of what is worth most: ringtape doctor, the GPU's
bandwidth and FLOP/s, training steps of ResNet-18, the same in PyTorch where python3 has it, the tests of the CUDA
backend, compute-sanitizer, benchmarks, trainings on GPU and CPU. A stage that fails does not stop the others. FOLDER
gets stages.txt, a line a stage as soon as it has ended; in the end report.md, results.json and logs.tar.gz. Data sets
other than the generated one are looked for in RINGTAPE_DATA_DIR.
  --pack FILE           builds the programs here, for -DCMAKE_CUDA_ARCHITECTURES [90a-real], and packs them in a .tar.xz
                        with these scripts and the libraries that a bare machine lacks. On that machine, which needs
                        CUDA 13's libraries, of the toolkit or Python's wheels, cuDNN and NCCL, but no compiler:
                        python3 -m tarfile -e FILE . && ringtape-gpu/tests/gpu.sh
  --packed              the programs are packed ones; the unpacked script knows it by itself
  --rehearse            with the programs of the preset cpu and an emulated GPU in place of CUDA's: tries this script,
                        with little work for each stage
  --parts LIST          of it, besides doctor: steps, pytorch, tests, sanitizers, benchmarks, trainings, methods, with
                        commas between them [all of these], and cpu: the tests that need no GPU; with what a command
                        may take limited, several share the work
  --deps FOLDER         libraries to build with that tests/gpu/dependencies.sh gathered
  --out FOLDER          for the report [build/gpu-report]
  --build FOLDER        to build in [build/cuda]
  --time-limit SECONDS  for everything; stages for which none is left are skipped [540]
  --revision TEXT       what is tested, for the report [git describe]
  --quick               the tests of the CUDA backend, a short memcheck and a few benchmarks alone
  -DNAME=VALUE          for CMake
Exit status: 0 all passed, or there is no CUDA device; 1 a stage failed; 2 usage.
docs/gpu-first-run.md says what to do next.
USAGE
}

deps='' out=$root/build/gpu-report build='' time_limit=540 revision='' quick=false pack_file='' packed=false
rehearse=false definitions=() command="tests/gpu.sh $*"
parts=steps,pytorch,tests,sanitizers,benchmarks,trainings,methods
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --quick) quick=true ;;
    --packed) packed=true ;;
    --rehearse) rehearse=true ;;
    -D?*=*) definitions+=("$1") ;;
    --deps | --out | --build | --time-limit | --revision | --parts | --pack)
      [[ ${2:-} ]] || die "$1: needs a value" 2
      case "$1" in
        --deps) deps=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        --build) build=$(realpath -m "$2") ;;
        --pack) pack_file=$(realpath -m "$2") ;;
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
[[ $parts =~ ^((steps|pytorch|tests|sanitizers|benchmarks|trainings|methods|cpu)(,|$))+$ ]] ||
  die "--parts: unknown part in '$parts'; --help lists all" 2
[[ -z $deps || -d $deps/usr ]] || die "--deps: there is no $deps/usr; tests/gpu/dependencies.sh $deps makes it" 2
wants() { [[ ,$parts, == *,$1,* ]]; }

cd "$root" || exit
export LC_ALL=C.UTF-8 # decimal points
PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
cores=$(nproc)
for part in stage machine checks trainings pack; do
  # shellcheck source=/dev/null
  source "$root/tests/gpu/$part.sh"
done

choose_programs
if [[ $pack_file ]]; then
  pack "$pack_file"
  exit
fi
find_gpu
begin_stages
export RINGTAPE_CONV_PLANS=$scratch/conv_plans # measured here, with nothing beside
describe_machine >"$out/machine.tsv"

if $packed; then
  use_packed_libraries
else
  use_cublas_of_python
  configure_for "${capability/./}"
  stage configure 90 "${configure[@]}"
  stage build 360 "${build_command[@]}" -- -k 0
  # A warning counts as a failure but stops nothing: other compilers have other warnings.
  # shellcheck disable=SC2016
  stage warnings 10 bash -c '! grep -E "warning( #[0-9]|[ :])" "$0"' "$out/logs/build.log"
fi
# Without its libraries no program starts.
stage libraries 60 bash -c 'find_libraries "$@"' bash "$build/ringtape" "$build"/bench/ops_bench \
  "$build"/tests/cuda_*_test"$checked" || finish 0

stage doctor 60 "$build/ringtape" doctor --device cuda
# What Hopper's descriptors mean; if something else than our kernels expect, these stay off.
probe=$build/tests/cuda_wgmma_test$checked
if [[ -x $probe ]]; then stage probe 60 "$probe" '--gtest_filter=CudaWgmmaProbe.*'; fi
ceilings
if wants steps; then steps; fi
if wants pytorch && ! $quick; then pytorch; fi
if wants tests; then tests; fi
if wants sanitizers; then sanitizers; fi
if wants benchmarks; then benchmarks; fi
if wants trainings && ! $quick; then trainings; fi
if wants methods && ! $quick; then methods; fi
if wants cpu; then
  stage "other tests" 300 ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 60 \
    --parallel "$cores" -E '(^|/)[Cc]uda'
fi
finish 0
