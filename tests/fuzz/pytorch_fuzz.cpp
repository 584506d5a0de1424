// Files of weights by PyTorch: what is read is within the file, and is written again as it was.
#include <cstring>

#include "tests/fuzz/target.h"
#include "train/io/pytorch_file.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  const MemoryFile file(input);
  for (const char* set : {"state_dict_ema", "teacher", "model"})
    read_or_refuse([&] { PyTorchFile chosen(file.path(), set); });
  read_or_refuse([&] {
    PyTorchFile in(file.path());
    std::vector<NamedTensor> tensors;
    for (const TensorEntry& entry : in.header().tensors) tensors.push_back({entry.name, in.read(tensors.size())});
    const MemoryFolder folder;
    const std::string path = folder.path() + "/again";
    write_pytorch(path, tensors, in.header().metadata);
    PyTorchFile again(path);
    require(again.header().metadata == in.header().metadata && again.header().tensors.size() == tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor &a = tensors[i].tensor, b = again.read(i);
      require(again.header().tensors[i].name == tensors[i].name && a.shape() == b.shape() && a.dtype() == b.dtype());
      require(a.size() == 0 || std::memcmp(View(a).data, View(b).data, size_t(a.size()) * size_of(a.dtype())) == 0);
    }
  });
}
