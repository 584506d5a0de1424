#include "train/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/log.h"
#include "core/printable.h"
#include "kernels/copy.h"
#include "nn/vit.h"
#include "train/io/safetensors_header.h"
#include "train/io/weights_file.h"
#include "train/weights/names.h"
#include "train/weights/trained_on.h"

namespace ringtape {

Tensor in_file_order(const Tensor& x) {
  const NoGrad no_grad;
  return x.rank() == 4 ? permute(x.detach(), {0, 3, 1, 2}) : x.detach();
}

Shape in_file_order(const Shape& s) { return s.rank() == 4 ? Shape{s[0], s[3], s[1], s[2]} : s; }

std::vector<NamedTensor> weights_of(nn::Module& module) {
  std::vector<NamedTensor> out;
  for (const nn::Named& p : nn::named_parameters(module)) out.push_back({p.name, in_file_order(*p.tensor)});
  for (const nn::Named& f : nn::named_frozen(module)) out.push_back({f.name, in_file_order(*f.tensor)});
  for (const nn::Named& b : nn::named_buffers(module)) out.push_back({b.name, in_file_order(*b.tensor)});
  return out;
}

void check_finite(const std::string& what, const Tensor& x) {
  if (!is_float(x.dtype())) return;
  const NoGrad no_grad;
  if (x.size() == 0) return;
  for (const Tensor& extreme : {min(x), max(x)})
    if (const double value = extreme.item(); !std::isfinite(value))
      detail::fail<Error>({what, ": holds ", std::isnan(value) ? "NaN" : "infinite numbers",
                           "; its training has diverged, use an earlier checkpoint or train with a lower --lr"});
}

namespace {

// Of positions or a convolution whose shape is another one.
std::string hint_for(const Shape& have, const FileTensor& want) {
  if (want.name == "pos_embed" && have.rank() == 3 && have.with(1, want.shape[1]) == want.shape)
    return "; it is for images or patches of another size, whose grid is not known";
  if (have.rank() != 4 || want.shape.rank() != 4) return "";
  if (have.with(1, want.shape[1]) == want.shape)
    return concat("; it is for images of ", have[1], " channels, these have ", want.shape[1]);
  if (want.name != "conv1.weight") return "";
  return have[0] == want.shape[0] ? "; --stem chooses that of a ResNet"
                                  : "; --width and --stem choose that of a ResNet";
}

// Throws FormatError unless the tensor of a file fits. `convert`: floating-point numbers may be of another dtype.
void check_fits(const std::string& path, const FileTensor& have, const FileTensor& want, bool convert) {
  const bool same = have.dtype == want.dtype, floats = is_float(have.dtype) && is_float(want.dtype);
  RT_CHECK_AS(FormatError, have.shape == want.shape && (same || (convert && floats)), path, ": tensor '",
              printable_name(have.name), "' is ", have.dtype, " ", have.shape, ", the model's is ", want.dtype, " ",
              want.shape, have.shape == want.shape ? "" : hint_for(have.shape, want));
}

[[noreturn]] void fail_absent(const std::string& path, const std::string& name) {
  detail::fail<FormatError>({path, ": no tensor '", name, "'; was it trained with another --model?"});
}
void check_none(const std::string& path, const std::vector<std::string>& unknown) {
  if (!unknown.empty())
    detail::fail<FormatError>({path, ": the model has no tensor '", printable_name(unknown.front()), "'"});
}

// The entries of a file, without their numbers.
std::map<std::string, FileTensor> by_name(const SafetensorsHeader& header) {
  std::map<std::string, FileTensor> out;
  for (const TensorEntry& e : header.tensors)
    out.emplace(e.name, FileTensor(e.name, Shape(std::span<const int64_t>(e.shape)), e.dtype));
  return out;
}

}  // namespace

void load_tensors(const std::string& path, const std::vector<FileTensor>& into) {
  std::map<std::string, const FileTensor*> wanted;
  for (const FileTensor& t : into) wanted.emplace(t.name, &t);
  const auto check = [&](const SafetensorsHeader& header) {
    std::map<std::string, FileTensor> file = by_name(header);
    for (const FileTensor& want : into) {
      const auto have = file.find(want.name);
      if (have == file.end()) fail_absent(path, want.name);
      check_fits(path, have->second, want, false);
      file.erase(have);
    }
    if (!file.empty()) check_none(path, {file.begin()->first});
  };
  read_safetensors(path, check,
                   [&](const TensorEntry& entry, Part rows, const Tensor& x) { wanted.at(entry.name)->put(rows, x); });
}

void load_weights(const std::string& path, nn::Module& module) { load_tensors(path, file_tensors(weights_of(module))); }

template <class T>  // NamedTensor, FileTensor
static bool is_of(const T& t, const std::string& layer) {
  return !layer.empty() && t.name.starts_with(layer + ".");
}

std::vector<NamedTensor> backbone_of(nn::Module& module, const std::string& last) {
  std::vector<NamedTensor> out = weights_of(module);
  std::erase_if(out, [&](const NamedTensor& t) { return is_of(t, last); });
  return out;
}

bool is_own(const std::map<std::string, std::string>& metadata) { return metadata.contains("ringtape.model"); }

namespace {

// Finds the places of a file's tensors in a module.
class BackboneLoader {
 public:
  BackboneLoader(const std::string& path, nn::Module& module, const std::string& last)
      : path_(path), last_(last), vit_(dynamic_cast<const nn::VisionTransformer*>(&module)),
        tensors_(file_tensors(weights_of(module))) {}

  LoadedWeights begin(const SafetensorsHeader& header, bool same_classes) {
    const std::map<std::string, FileTensor> file = by_name(header);
    image_ = trained_on(header.metadata, path_).image;
    std::vector<std::string> names, own;
    for (const auto& [name, t] : file) names.push_back(name);
    for (const FileTensor& t : tensors_) own.push_back(t.name);
    NamesInFile found = find_names(names, own, last_);
    const auto is_last = [&](const auto& t) { return is_of(t, last_); };
    if (std::ranges::none_of(tensors_, is_last))  // the module has no last layer, the file may have one
      std::erase_if(found.rest, [&](const std::string& name) { return name.starts_with(found.prefix + last_ + "."); });
    LoadedWeights out{.last_layer = true, .prefix = found.prefix, .own = is_own(header.metadata)};
    for (const FileTensor& t : tensors_) {
      if (!is_of(t, last_)) continue;
      const auto name = found.of.find(t.name);
      if (name != found.of.end()) check_readable(*header.find(name->second));
      const Shape shape = name == found.of.end() ? Shape() : file.at(name->second).shape;
      if (name != found.of.end() && same_classes && shape == t.shape) continue;
      out.last_layer = false;
      if (shape.rank() > 0) out.outputs = shape[0];
    }
    for (const FileTensor& t : tensors_) {
      if (is_of(t, last_) && !out.last_layer) continue;
      if (const auto name = found.of.find(t.name); name != found.of.end())
        add(*header.find(name->second), file.at(name->second), t);
      else if (!is_counter(t.name)) fail_absent(path_, t.name);
    }
    check_none(path_, found.unknown);
    out.resampled = resampled_;
    if (!out.own) out.left_out = summary_of(found.rest, found.prefix);
    else if (found.prefix.empty()) check_none(path_, found.rest);
    for (const std::string& set : header.beside)
      out.left_out += concat(out.left_out.empty() ? "" : ", ", set, " (another set: --weights-key ", set, ")");
    return out;
  }
  bool wants(const std::string& name) const { return into_.contains(name); }
  void put(const std::string& name, Part rows, const Tensor& x) const { into_.at(name)(rows, x); }

 private:
  // A counter of batches, which PyTorch before 0.4.1 does not have, nor what averages or converts all tensors.
  static bool is_counter(const std::string& name) { return name.ends_with("num_batches_tracked"); }
  void check_readable(const TensorEntry& entry) const {
    RT_CHECK_AS(FormatError, entry.problem.empty(), path_, ": tensor '", printable_name(entry.name), "' ",
                entry.problem);
  }
  void add(const TensorEntry& entry, const FileTensor& have, const FileTensor& want) {
    if (is_counter(want.name) && (have.dtype != want.dtype || have.shape != want.shape)) return;
    check_readable(entry);
    if (add_positions(have, want)) return;
    check_fits(path_, have, want, true);
    into_.emplace(have.name, want.put);
  }
  // Positions of another grid are resampled, as timm does. The file's is known from its images; else it is the
  // network's, if it has as many patches, or taken as square.
  bool add_positions(const FileTensor& have, const FileTensor& want) {
    if (!vit_ || want.name != "pos_embed" || have.shape.rank() != 3 || !is_float(have.dtype)) return false;
    if (image_.empty() && have.shape == want.shape) return false;
    const int64_t patches = std::max<int64_t>(0, have.shape[1] - 1), side = std::lround(std::sqrt(double(patches)));
    const nn::Grid to = vit_->grid();
    nn::Grid from = {side, side};
    if (!image_.empty()) from = {image_[0] / vit_->patch(), image_[1] / vit_->patch()};
    const bool whole = patches > 0 && from[1] > 0 && patches % from[1] == 0 && patches / from[1] == from[0];
    if (!whole || from == to || have.shape != want.shape.with(1, 1 + patches)) return false;
    resampled_ = concat("positions of ", from[0], "x", from[1], " patches resampled to ", to[0], "x", to[1]);
    into_.emplace(have.name, [put = want.put, from, to](Part rows, const Tensor& x) {
      const NoGrad no_grad;
      put(rows, nn::resampled_positions(cast(x, DType::f32), 1, from, to));
    });
    return true;
  }

  const std::string &path_, &last_;
  const nn::VisionTransformer* vit_;
  std::vector<int64_t> image_;  // that the file says it was trained on
  std::string resampled_;
  std::vector<FileTensor> tensors_;                                       // the module's
  std::map<std::string, std::function<void(Part, const Tensor&)>> into_;  // by the file's names
};

}  // namespace

LoadedWeights load_backbone(const std::string& path, nn::Module& module, const std::string& last, bool same_classes,
                            const std::string& set) {
  LoadedWeights out;
  BackboneLoader loader(path, module, last);
  read_weights(
      path, [&](const SafetensorsHeader& header) { out = loader.begin(header, same_classes); },
      [&](const std::string& name) { return loader.wants(name); },
      [&](const TensorEntry& entry, Part rows, const Tensor& x) { loader.put(entry.name, rows, x); }, set);
  return out;
}

LoadedWeights load_whole(const std::string& path, nn::Module& module, const std::string& last, const std::string& set) {
  LoadedWeights out = load_backbone(path, module, last, true, set);
  if (!out.left_out.empty()) log_warn(path, ": not used: ", printable(out.left_out));
  if (!out.resampled.empty()) log_warn(path, ": ", out.resampled);
  for (const NamedTensor& t : out.last_layer ? weights_of(module) : backbone_of(module, last))
    check_finite(concat(path, ": tensor '", t.name, "'"), t.tensor);
  return out;
}

}  // namespace ringtape
