#!/bin/sh
# Fuzzes the frames of a store with libFuzzer for so many seconds (60). Needs clang with its runtime libraries; works in build/fuzz.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/fuzz/corpus
# A will, a wait, an addition, a value, a goodbye.
printf '\31\0\0\0\13\1\0\0\0\0\0\0\0\0\0\0\0\2\0\1\0\0\0b\1\0\0\0w\31\0\0\0\7\2\0\0\0\0\0\0\0\0\0\0\0\2\0\1\0\0\0a\1\0\0\0b\24\0\0\0\11\3\0\0\0\1\0\0\0\0\0\0\0\1\0\1\0\0\0a\31\0\0\0\4\4\0\0\0\0\0\0\0\0\0\0\0\2\0\1\0\0\0b\1\0\0\0v\17\0\0\0\15\5\0\0\0\0\0\0\0\0\0\0\0\0\0' > build/fuzz/corpus/seed
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
  tests/fuzz/frame_fuzz.cpp comm/store/frame.cpp comm/store/state.cpp core/text.cpp -o build/fuzz/frame_fuzz
exec build/fuzz/frame_fuzz -max_total_time="${1:-60}" -max_len=4096 -use_value_profile=1 -artifact_prefix=build/fuzz/ -print_final_stats=1 build/fuzz/corpus
