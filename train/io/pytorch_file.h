#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/io/pytorch_tensors.h"
#include "train/io/safetensors.h"

// PyTorch's files of weights (.pth, .pt, .ckpt), by torch.save: a ZIP archive of a pickle and the numbers, or, before
// 2020, several pickles and then the numbers. Nothing in them is executed (train/io/pickle.h).
namespace ringtape {

// Whether a file is a ZIP archive or a pickle by its first bytes, and no safetensors file; a header of some sizes
// begins like a pickle.
bool is_pytorch(const std::string& path);

// The tensors of a file's state_dict: that is the whole file; or its member "state_dict", "model" or the like; or its
// only member with tensors; or what the modules of a whole model hold. `set` names another member, or is what the names
// of the tensors begin with, before a dot. Throws IoError; FormatError, beginning with the
// path, for anything else, with what the file has instead.
class PyTorchFile {
 public:
  explicit PyTorchFile(const std::string& path, const std::string& set = {});
  ~PyTorchFile();
  // Sorted by name; begin and end are not used. The metadata are those of write_pytorch().
  const SafetensorsHeader& header() const { return header_; }
  // The tensor of header().tensors[i], contiguous, on cpu:0. Throws FormatError for numbers that are damaged or absent,
  // and if the entry has a problem.
  Tensor read(size_t i);

  class Source;  // where the storages are

 private:
  std::string path_;
  std::unique_ptr<Source> source_;
  SafetensorsHeader header_;
  std::vector<PickledTensor> tensors_;
};

// Writes a state_dict that torch.load(path) reads: {name: tensor}, atomically. The same tensors give the same bytes.
// The metadata are in a file of the archive at which PyTorch does not look. Throws IoError, or UsageError for a
// repeated name.
void write_pytorch(const std::string& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata = {});

}  // namespace ringtape
