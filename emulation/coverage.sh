#!/usr/bin/env bash
# Line coverage of kernels/cuda by the emulated tests; fails below 95 %. Builds build/coverage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly build=build/coverage least=95
readonly tests=(cuda_ops_test cuda_kernels_test cuda_matmul_test cuda_reduce_test cuda_blas_test cuda_images_test
  cuda_augment_test cuda_policy_test cuda_knn_test cuda_train_test)
cmake -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DRINGTAPE_CUDA=EMULATED -DRINGTAPE_BENCH=OFF \
  -DRINGTAPE_COVERAGE=ON -DRINGTAPE_ALL_CHECKS=ON >"$build.log" 2>&1 || { tail -n 20 "$build.log" >&2 && exit 1; }
cmake --build "$build" --target "${tests[@]}" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" \
  >>"$build.log" 2>&1 || { tail -n 30 "$build.log" >&2 && exit 1; }
find "$build" -name '*.gcda' -delete
printf '%s\n' "${tests[@]}" |
  RINGTAPE_EMULATED_GPU=devices=2 xargs -P "${CTEST_PARALLEL_LEVEL:-2}" -I{} \
    env "$build/tests/{}" --gtest_brief=1 >>"$build.log"

# A line counts as executed if any instantiation executed it, in any file that includes it.
cd "$build"
gcov --json-format --stdout CMakeFiles/ringtape_cuda_kernels.dir/kernels/cuda/*.gcda 2>/dev/null | python3 -c '
import json, sys
lines = {}
for text in sys.stdin:
    if not text.strip(): continue
    for file in json.loads(text)["files"]:
        if "/kernels/cuda/" not in "/" + file["file"]: continue
        seen = lines.setdefault(file["file"].split("kernels/cuda/")[-1], {})
        for line in file["lines"]: seen[line["line_number"]] = seen.get(line["line_number"], 0) + line["count"]
total = hit = 0
for name, seen in sorted(lines.items()):
    executed = sum(1 for count in seen.values() if count)
    total += len(seen); hit += executed
    missed = [n for n, count in sorted(seen.items()) if not count]
    print(f"{100 * executed / len(seen):6.1f} %  {name}" + (f"  not executed: {missed}" if missed else ""))
print(f"{100 * hit / total:6.1f} %  of {total} lines of kernels/cuda, emulated")
sys.exit(100 * hit < '$least' * total)
'
