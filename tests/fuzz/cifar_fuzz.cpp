// A file of CIFAR's records: the first byte says how many label bytes and records there should be.
#include <vector>

#include "tests/fuzz/target.h"
#include "train/data/sets/cifar.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  if (input.empty()) return;
  const CifarFile kind{
      .records = input[0] >> 1 & 3, .label_bytes = 1 + (input[0] & 1), .classes = input[0] & 1 ? 100 : 10};
  const MemoryFile file(input.substr(1));
  std::vector<uint8_t> images(size_t(kind.records) * 32 * 32 * 3);
  std::vector<int64_t> labels(size_t(kind.records), -1);
  if (!read_or_refuse([&] { read_cifar(file.path(), kind, images.data(), labels.data()); })) return;
  for (const int64_t label : labels) require(label >= 0 && label < kind.classes);
}
