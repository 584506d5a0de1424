# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu.sh
# tests/gpu.sh --pack FILE.

most_mib=40 # what travels to a machine may be limited

# The system's own, and NVIDIA's: these are the other machine's.
left_out='^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|cudart|cublas|cublasLt|cudnn|nccl))\.so'

# The programs as files in $build.
pack_programs() { targets | sed 's/^ringtape_binary$/ringtape/; s/^ops_bench$/bench\/&/; s/^cuda_/tests\/&/'; }

build_to_pack() {
  configure_for 90-real
  "${configure[@]}" && "${build_command[@]}"
}

# The libraries of these programs that a bare machine lacks, and those of the build.
libraries_of() {
  ldd "$@" | sed -nE 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p' | grep -vE "$left_out" | sort -u
}

pack() { # FILE
  local file=$1 folder programs program name path bytes
  mapfile -t programs < <(pack_programs)
  mkdir -p "${build%/*}"
  build_size="3 GB" quietly "building the programs to pack" "$build.log" build_to_pack
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  folder=$scratch/ringtape-gpu
  mkdir -p "$folder"/{programs/bench,programs/tests,lib,tests,.ci} "$(dirname "$file")"
  for program in "${programs[@]}"; do
    cp "$build/$program" "$folder/programs/$program" || die "cannot pack $program"
  done
  while read -r name path; do
    cp -L "$path" "$folder/lib/$name" || die "cannot pack $path"
  done < <(cd "$build" && libraries_of "${programs[@]}")
  strip "$folder"/programs/ringtape "$folder"/programs/*/* "$folder"/lib/* || die "cannot strip the programs"
  cp -r --parents tests/gpu.sh tests/gpu .ci/quietly.sh bench/pytorch/gpu_step.py tests/fixtures/make_resnet.py \
    docs/gpu-first-run.md LICENSE "$folder" || die "cannot pack the scripts"
  printf '%s\n' "revision $revision" "preset $preset" >"$folder/packed.txt"
  # A window larger than a program: they have the same kernels.
  tar -C "$scratch" -cf - ringtape-gpu | xz -T1 --lzma2=preset=6,dict=128MiB >"$file" || die "cannot write $file"
  bytes=$(stat -c %s "$file")
  ((bytes <= most_mib << 20)) || die "$file has $((bytes >> 20)) MiB, more than $most_mib; name fewer architectures"
  echo "gpu.sh: $file: $((bytes >> 20)) MiB of $(du -sm "$folder" | cut -f1); there: python3 -m tarfile -e \
${file##*/} . && ringtape-gpu/tests/gpu.sh"
}
