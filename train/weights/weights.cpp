#include "train/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/printable.h"
#include "kernels/copy.h"

namespace ringtape {

Tensor in_file_order(const Tensor& x) {
  const NoGrad no_grad;
  return x.rank() == 4 ? permute(x.detach(), {0, 3, 1, 2}) : x.detach();
}

std::vector<NamedTensor> weights_of(nn::Module& module) {
  std::vector<NamedTensor> out;
  for (const nn::Named& p : nn::named_parameters(module)) out.push_back({p.name, in_file_order(*p.tensor)});
  for (const nn::Named& b : nn::named_buffers(module)) out.push_back({b.name, in_file_order(*b.tensor)});
  return out;
}

void check_finite(const std::string& what, const Tensor& x) {
  if (!is_float(x.dtype())) return;
  const NoGrad no_grad;
  const Tensor host = cast(contiguous(x).copy_to(Device{}), DType::f64);
  for (const double value : host.span<double>())
    RT_CHECK_AS(Error, std::isfinite(value), what, ": holds ", std::isnan(value) ? "NaN" : "infinite numbers",
                "; its training has diverged, use an earlier checkpoint or train with a lower --lr");
}

static constexpr size_t kShownNameBytes = 100;  // maximum bytes of a tensor's name in a message

// `convert`: converts floating-point numbers of another dtype.
static void load_matching_tensors(const Safetensors& file, const std::string& path,
                                  const std::vector<NamedTensor>& into, bool convert = false) {
  std::map<std::string, Tensor> found;
  for (const NamedTensor& t : file.tensors) found.emplace(t.name, t.tensor);
  for (const NamedTensor& want : into) {
    const auto at = found.find(want.name);
    RT_CHECK_AS(FormatError, at != found.end(), path, ": no tensor '", want.name,
                "'; was it trained with another --model?");
    const Tensor& have = at->second;
    const bool same = have.dtype() == want.tensor.dtype(),
               floats = is_float(have.dtype()) && is_float(want.tensor.dtype());
    RT_CHECK_AS(FormatError, have.shape() == want.tensor.shape() && (same || (convert && floats)), path, ": tensor '",
                want.name, "' is ", have.dtype(), " ", have.shape(), ", the model's is ", want.tensor.dtype(), " ",
                want.tensor.shape());
  }
  std::map<std::string, Tensor> extra = found;
  for (const NamedTensor& want : into) extra.erase(want.name);
  RT_CHECK_AS(FormatError, extra.empty(), path, ": the model has no tensor '",
              printable(extra.begin()->first.substr(0, kShownNameBytes)), "'");
  for (const NamedTensor& want : into) {
    const Tensor& from = found.at(want.name);
    const Device device = want.tensor.device();
    copy(want.tensor, device == from.device() ? from : from.copy_to(device));
    want.tensor.storage()->written_by("load_tensors");
  }
}

void load_tensors(const std::string& path, const std::vector<NamedTensor>& into) {
  load_matching_tensors(read_safetensors(path), path, into);
}

void load_weights(const std::string& path, nn::Module& module) { load_tensors(path, weights_of(module)); }

static bool is_of(const NamedTensor& t, const std::string& layer) { return t.name.starts_with(layer + "."); }

std::vector<NamedTensor> backbone_of(nn::Module& module, const std::string& last) {
  std::vector<NamedTensor> out = weights_of(module);
  std::erase_if(out, [&](const NamedTensor& t) { return is_of(t, last); });
  return out;
}

// The tensors below `name`, without that prefix.
std::vector<NamedTensor> below(const std::string& name, std::vector<NamedTensor> tensors) {
  std::erase_if(tensors, [&](const NamedTensor& t) { return !is_of(t, name); });
  for (NamedTensor& t : tensors) t.name.erase(0, name.size() + 1);
  return tensors;
}

LastLayer load_backbone(const std::string& path, nn::Module& module, const std::string& last, bool same_classes) {
  Safetensors file = read_safetensors(path);
  if (std::vector<NamedTensor> own = below("backbone", file.tensors); !own.empty()) file.tensors = std::move(own);
  const std::vector<NamedTensor> wanted = weights_of(module);
  bool any = false, fits = true;
  LastLayer out;
  for (const NamedTensor& t : file.tensors) {
    if (!is_of(t, last)) continue;
    any = true;
    const auto same =
        std::find_if(wanted.begin(), wanted.end(), [&](const NamedTensor& w) { return w.name == t.name; });
    if (same_classes && (same == wanted.end() || same->tensor.shape() == t.tensor.shape())) continue;
    fits = false;
    if (t.tensor.rank() > 0) out.outputs = t.tensor.dim(0);
  }
  out.loaded = any && fits;
  if (!fits) std::erase_if(file.tensors, [&](const NamedTensor& t) { return is_of(t, last); });
  load_matching_tensors(file, path, out.loaded ? wanted : backbone_of(module, last), true);
  return out;
}

}  // namespace ringtape
