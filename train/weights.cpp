#include "train/weights.h"

#include <set>

#include "kernels/copy.h"
#include "train/io/safetensors.h"

namespace ringtape {

static std::vector<nn::Named> everything(nn::Module& module) {
  std::vector<nn::Named> out = nn::named_parameters(module);
  for (const nn::Named& buffer : nn::named_buffers(module)) out.push_back(buffer);
  return out;
}

void save_weights(const std::string& path, nn::Module& module,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> tensors;
  for (const nn::Named& p : everything(module)) tensors.push_back({p.name, p.tensor->detach()});
  write_safetensors(path, tensors, metadata);
}

void load_weights(const std::string& path, nn::Module& module) {
  const Safetensors file = read_safetensors(path);
  std::map<std::string, Tensor> found;
  for (const NamedTensor& t : file.tensors) found.emplace(t.name, t.tensor);
  const std::vector<nn::Named> wanted = everything(module);
  for (const nn::Named& p : wanted) {  // all of them first: a refused file changes nothing
    const auto at = found.find(p.name);
    RT_CHECK_AS(FormatError, at != found.end(), path, ": no tensor '", p.name,
                "'; was it made by another --model?");
    const Tensor &have = at->second, &want = *p.tensor;
    RT_CHECK_AS(FormatError, have.shape() == want.shape() && have.dtype() == want.dtype(), path, ": tensor '",
                p.name, "' is ", have.dtype(), " ", have.shape(), ", the model's is ", want.dtype(), " ",
                want.shape());
  }
  std::set<std::string> names;
  for (const nn::Named& p : wanted) names.insert(p.name);
  for (const auto& [name, tensor] : found)
    RT_CHECK_AS(FormatError, names.contains(name), path, ": the model has no tensor '", name, "'");
  for (const nn::Named& p : wanted) {
    const Tensor& from = found.at(p.name);
    const Device device = p.tensor->device();
    copy(*p.tensor, device.type == DeviceType::cpu ? from : from.copy_to(device));
    p.tensor->storage()->written_by("load_weights");
  }
}

}  // namespace ringtape
