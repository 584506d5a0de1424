#include "train/io/weights_file.h"

#include "train/io/pytorch_file.h"

namespace ringtape {

static SafetensorsHeader chosen(SafetensorsHeader header, const std::string& path, const std::string& set) {
  if (set.empty()) return header;
  std::erase_if(header.tensors, [&](const TensorEntry& t) { return !t.name.starts_with(set + "."); });
  RT_CHECK_AS(FormatError, !header.tensors.empty(), path, ": has no set of weights '", set,
              "', with tensors of names such as ", set, ".fc.weight");
  return header;
}

SafetensorsHeader read_weights_header(const std::string& path, const std::string& set) {
  return is_pytorch(path) ? PyTorchFile(path, set).header() : chosen(read_safetensors_header(path), path, set);
}

void read_weights(const std::string& path, const std::function<void(const SafetensorsHeader&)>& begin,
                  const std::function<bool(const std::string& name)>& wanted,
                  const std::function<void(const TensorEntry&, Part rows, const Tensor& x)>& put,
                  const std::string& set) {
  if (!is_pytorch(path))
    return read_safetensors(
        path, [&](const SafetensorsHeader& header) { begin(chosen(header, path, set)); }, put, wanted);
  PyTorchFile file(path, set);
  begin(file.header());
  for (size_t i = 0; i < file.header().tensors.size(); ++i) {
    const TensorEntry& entry = file.header().tensors[i];
    if (wanted(entry.name)) put(entry, {0, entry.shape.empty() ? 1 : entry.shape[0]}, file.read(i));
  }
}

static bool writes_pytorch(const std::string& path) { return path.ends_with(".pth") || path.ends_with(".pt"); }

bool is_weights_name(const std::string& path) { return path.ends_with(".safetensors") || writes_pytorch(path); }

void write_weights(const std::string& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  writes_pytorch(path) ? write_pytorch(path, tensors, metadata) : write_safetensors(path, tensors, metadata);
}

}  // namespace ringtape
