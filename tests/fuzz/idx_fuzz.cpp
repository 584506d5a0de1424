// idx files, plain and gzip-compressed, of labels or of images by the first byte.
#include "tests/fuzz/target.h"
#include "train/data/sets/idx.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  if (input.empty()) return;
  const int rank = input[0] & 1 ? 3 : 1;
  const MemoryFile file(input.substr(1));
  read_or_refuse([&] {
    const Tensor x = read_idx(file.path(), rank);
    require(x.rank() == rank);
  });
}
