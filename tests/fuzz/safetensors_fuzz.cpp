// Files of weights: what is read is written again as it was.
#include <cstring>

#include "tests/fuzz/target.h"
#include "train/io/safetensors.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  const MemoryFile file(input);
  read_or_refuse([&] {
    const Safetensors read = read_safetensors(file.path());
    const MemoryFolder folder;
    const std::string path = folder.path() + "/again";
    write_safetensors(path, read.tensors, read.metadata);
    const Safetensors again = read_safetensors(path);
    const auto without_checksum = [](auto metadata) {  // which is written anew
      metadata.erase("ringtape.crc32");
      return metadata;
    };
    require(without_checksum(again.metadata) == without_checksum(read.metadata));
    require(again.tensors.size() == read.tensors.size());
    for (size_t i = 0; i < read.tensors.size(); ++i) {
      const Tensor &a = read.tensors[i].tensor, &b = again.tensors[i].tensor;
      require(again.tensors[i].name == read.tensors[i].name && a.shape() == b.shape() && a.dtype() == b.dtype());
      require(a.size() == 0 || std::memcmp(View(a).data, View(b).data, size_t(a.size()) * size_of(a.dtype())) == 0);
    }
  });
}
