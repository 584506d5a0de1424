#!/usr/bin/env bash
# All C++ and CUDA sources are as clang-format 14 (Debian 12) writes them; other versions differ in places.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! clang-format --version 2>/dev/null | grep -q ' 14\.'; then
  echo "skipped: there is no clang-format 14 (./setup.sh check)" && exit 77
fi
git ls-files -z '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -0 -n 50 -P 2 clang-format --dry-run --Werror
