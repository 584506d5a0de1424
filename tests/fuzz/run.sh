#!/bin/sh
# Fuzzes the frames of a store with libFuzzer for so many seconds (60). Needs clang with its runtime libraries; works in build/fuzz.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/fuzz/corpus
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
  tests/fuzz/frame_fuzz.cpp comm/store/frame.cpp comm/store/state.cpp core/text.cpp -o build/fuzz/frame_fuzz
exec build/fuzz/frame_fuzz -max_total_time="${1:-60}" -max_len=4096 -artifact_prefix=build/fuzz/ -print_final_stats=1 build/fuzz/corpus
