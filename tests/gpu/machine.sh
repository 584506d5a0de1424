# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of gpu.sh
# What tests/gpu.sh finds: programs, a GPU, libraries.

# The programs to run or to build; the names of the tests end with $checked.
choose_programs() {
  local key value
  checked=''
  if [[ -f $root/packed.txt ]]; then
    [[ ! $pack_file ]] || die "--pack: these programs are packed already" 2
    packed=true
    while read -r key value; do
      case $key in
        revision) revision=${revision:-$value} ;;
        preset) [[ $value != cpu ]] || rehearse=true ;;
      esac
    done <"$root/packed.txt"
    build=$root/programs
  elif $packed; then
    die "--packed: there are no packed programs here; tests/gpu.sh --pack FILE makes them, and a script unpacked with \
them runs them" 2
  fi
  preset=cuda
  if $rehearse; then preset=cpu checked=_checked; fi
  build=${build:-$root/build/$preset}
  revision=${revision:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
  [[ -z $deps ]] || export CMAKE_PREFIX_PATH=$deps/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
}

# The programs, as CMake's targets.
targets() {
  local source
  printf '%s\n' ringtape_binary ops_bench
  for source in tests/cuda/*_test.cpp; do basename "$source" .cpp; done | sed "s/\$/$checked/"
}

configure_for() { # ARCHITECTURE: sets the commands; those among the definitions go before them
  local to=()
  $rehearse || to=("-DCMAKE_CUDA_ARCHITECTURES=${1/#90/90a}") # with Hopper's own instructions
  configure=(cmake --preset "$preset" -B "$build" "${to[@]}" "${definitions[@]}")
  build_command=(cmake --build "$build" --parallel "$cores")
  mapfile -t to < <(targets)
  wants cpu || build_command+=(--target "${to[@]}")
}

# Sets gpu_name, driver, capability and memory. Without a GPU the script ends, and nothing has failed.
find_gpu() {
  local gpu
  if $rehearse; then
    gpu_name='emulated GPU' driver=none capability=9.0 memory='2048 MiB'
    export RINGTAPE_EMULATED_GPU=${RINGTAPE_EMULATED_GPU:-devices=2 memory=2G}
    return
  fi
  command -v nvidia-smi >/dev/null || no_device "there is no nvidia-smi"
  gpu=$(nvidia-smi --id=0 --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader 2>&1) ||
    no_device "nvidia-smi: ${gpu%%$'\n'*}"
  IFS=, read -r gpu_name driver capability memory <<<"${gpu//, /,}"
  [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] || no_device "nvidia-smi: $gpu"
}
no_device() {
  echo "no CUDA device: $1; skipped"
  exit 0
}

# The folders NAME (lib or include) of Python's NVIDIA wheels.
wheels() {
  python3 -c 'import importlib.util, glob, sys
spec = importlib.util.find_spec("nvidia")
for folder in spec.submodule_search_locations if spec else []:
    print(*sorted(glob.glob(folder + "/*/" + sys.argv[1])), sep="\n")' "$1" 2>/dev/null | grep . || true
}

# Where packed programs look for libraries: those packed, then NVIDIA's of this machine.
use_packed_libraries() {
  local folders
  mapfile -t folders < <(printf '%s\n' "$root/lib" && wheels lib && echo /usr/local/cuda/lib64)
  folders+=(${LD_LIBRARY_PATH:+"$LD_LIBRARY_PATH"})
  other_libraries=${LD_LIBRARY_PATH:-}
  LD_LIBRARY_PATH=$(IFS=: && echo "${folders[*]}")
  export LD_LIBRARY_PATH
}

# find_libraries PROGRAM...: lists what they are linked with; fails if something is not there. Of the others than the
# first, those that could not be built are left out.
find_libraries() {
  local program missing=false
  [[ -x $1 ]] || { echo "error: there is no $1" && return 1; }
  for program; do
    if [[ ! -x $program ]]; then continue; fi
    echo "$program"
    ldd "$program" || return
    if ldd "$program" | grep -q 'not found'; then missing=true; fi
  done
  ! $missing
}
export -f find_libraries

# version HEADER NAME...: the numbers of #define NAME number, joined by dots
version() {
  local header=$1 name numbers=()
  shift
  for name; do numbers+=("$(sed -nE "s/^#define $name +([0-9]+).*/\1/p" "$header" | head -n 1)"); done
  (IFS=. && echo "${numbers[*]}")
}

first_with() { # HEADER: the first folder with it, of the toolkit, the system and Python's wheels
  local folder nvcc
  nvcc=$(command -v nvcc) || nvcc=/usr/local/cuda/bin/nvcc
  for folder in "${nvcc%/bin/nvcc}/include" /usr/include /usr/include/x86_64-linux-gnu $(wheels include); do
    if [[ -f $folder/$1 ]]; then
      echo "$folder"
      return
    fi
  done
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
    "C++ compiler" "$(c++ --version 2>/dev/null | head -n 1)" CMake "$(cmake --version 2>/dev/null | head -n 1)" \
    CPU "$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $cores cores" system "$(uname -sr)" \
    date "$(date -u +'%Y-%m-%d %H:%M UTC')" command "$command" revision "$revision" \
    programs "$($packed && echo packed || echo built here)$(! $rehearse || echo ', emulated')"
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
