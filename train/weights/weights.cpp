#include "train/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/printable.h"
#include "kernels/copy.h"
#include "train/io/safetensors_header.h"

namespace ringtape {

Tensor in_file_order(const Tensor& x) {
  const NoGrad no_grad;
  return x.rank() == 4 ? permute(x.detach(), {0, 3, 1, 2}) : x.detach();
}

Shape in_file_order(const Shape& s) { return s.rank() == 4 ? Shape{s[0], s[3], s[1], s[2]} : s; }

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

namespace {

std::map<std::string, FileTensor> by_name(const std::vector<FileTensor>& tensors) {
  std::map<std::string, FileTensor> out;
  for (const FileTensor& t : tensors) out.emplace(t.name, t);
  return out;
}

// Throws FormatError unless the tensors of a file are those of `into`. `convert`: floating-point numbers may be of
// another dtype.
void check_match(const std::vector<FileTensor>& file, const std::string& path, const std::vector<FileTensor>& into,
                 bool convert = false) {
  std::map<std::string, FileTensor> found = by_name(file);
  for (const FileTensor& want : into) {
    const auto at = found.find(want.name);
    RT_CHECK_AS(FormatError, at != found.end(), path, ": no tensor '", want.name,
                "'; was it trained with another --model?");
    const FileTensor& have = at->second;
    const bool same = have.dtype == want.dtype, floats = is_float(have.dtype) && is_float(want.dtype);
    RT_CHECK_AS(FormatError, have.shape == want.shape && (same || (convert && floats)), path, ": tensor '", want.name,
                "' is ", have.dtype, " ", have.shape, ", the model's is ", want.dtype, " ", want.shape);
    found.erase(at);
  }
  RT_CHECK_AS(FormatError, found.empty(), path, ": the model has no tensor '",
              printable(found.begin()->first.substr(0, kShownNameBytes)), "'");
}

}  // namespace

void load_tensors(const std::string& path, const std::vector<FileTensor>& into) {
  const std::map<std::string, FileTensor> wanted = by_name(into);
  const auto check = [&](const SafetensorsHeader& header) {
    std::vector<FileTensor> file;
    for (const TensorEntry& e : header.tensors)
      file.emplace_back(e.name, Shape(std::span<const int64_t>(e.shape)), e.dtype);
    check_match(file, path, into);
  };
  read_safetensors(path, check, [&](const TensorEntry& entry, Part rows, const Tensor& x) {
    wanted.at(entry.name).put(rows, x);
  });
}

void load_weights(const std::string& path, nn::Module& module) {
  load_tensors(path, file_tensors(weights_of(module)));
}

static bool is_of(const NamedTensor& t, const std::string& layer) { return t.name.starts_with(layer + "."); }

std::vector<NamedTensor> backbone_of(nn::Module& module, const std::string& last) {
  std::vector<NamedTensor> out = weights_of(module);
  std::erase_if(out, [&](const NamedTensor& t) { return is_of(t, last); });
  return out;
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
  out.loaded = (any || last.empty()) && fits;
  if (!fits) std::erase_if(file.tensors, [&](const NamedTensor& t) { return is_of(t, last); });
  const std::vector<FileTensor> into = file_tensors(out.loaded ? wanted : backbone_of(module, last));
  check_match(file_tensors(file.tensors), path, into, true);
  for (const FileTensor& t : into) t.put({0, t.rows()}, file[t.name]);
  return out;
}

}  // namespace ringtape
