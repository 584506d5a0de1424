#include "train/evaluation/snapshot.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "core/check.h"
#include "core/parse.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/io/look.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

constexpr std::string_view kEpoch = "epoch-";
constexpr const char *kSuffix = ".safetensors", *kAbout = "ringtape.snapshot";
constexpr int64_t kLargest = 1 << 25;                         // bytes of a file
constexpr int64_t kMaxImages = 2000, kMaxRows = 10000;        // that a file may hold
constexpr int64_t kMaxConfusionRows = 40, kMaxMistakes = 50;  // above: no matrix on the page; of its list

using Parts = std::vector<std::pair<const char*, Tensor Snapshot::*>>;
const Parts kParts = {{"images", &Snapshot::images},         {"labels", &Snapshot::labels},
                      {"confusion", &Snapshot::confusion},   {"samples", &Snapshot::samples},
                      {"predicted", &Snapshot::predicted},   {"confidence", &Snapshot::confidence},
                      {"viewed", &Snapshot::viewed},         {"map", &Snapshot::map},
                      {"map_labels", &Snapshot::map_labels}, {"queries", &Snapshot::queries},
                      {"neighbours", &Snapshot::neighbours}, {"similarity", &Snapshot::similarity},
                      {"filters", &Snapshot::filters}};

std::string base64(const uint8_t* bytes, size_t count) {
  std::string out(4 * ((count + 2) / 3) + 1, '\0');
  out.resize(size_t(::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes, int(count))));
  return out;
}

// A snapshot from a file that may hold anything: its parts are requested by type and shape.
class SnapshotReader {
 public:
  explicit SnapshotReader(std::string path) : path_(std::move(path)), file_(read_safetensors(path_)) {
    const auto about = file_.metadata.find(kAbout);
    check(about != file_.metadata.end(), "is not a snapshot");
    about_ = parse_json(about->second, path_, 4);
  }

  Json json() {
    const JsonFields about(about_, path_);
    const auto classes = about["classes"].get<std::vector<std::string>>();
    Json out{{"epoch", about.integer("epoch")}, {"step", about.integer("step")}, {"split", about.text("split")}};
    out["classes"] = classes;
    if (const Tensor* const images = find("images", DType::u8, {-1, -1, -1, -1}))
      add_images(*images), n_ = images->dim(0);
    labels_ = n_ > 0 ? find("labels", DType::i64, {n_}) : nullptr;
    if (const Tensor* const counts = find("confusion", DType::i64, {int64_t(classes.size()), int64_t(classes.size())}))
      add_confusion(out, *counts);
    if (const Tensor* const at = find("samples", DType::i64, {-1})) out["samples"] = samples(*at);
    if (const Tensor* const at = find("viewed", DType::i64, {-1})) out["views"] = views(*at);
    if (const Tensor* const points = find("map", DType::f32, {-1, 2})) out["map"] = map(*points, about);
    if (const Tensor* const at = find("queries", DType::i64, {-1})) out["neighbours"] = neighbours(*at);
    if (const Tensor* const filters = find("filters", DType::u8, {-1, -1, -1, -1})) {
      Json list = Json::list();
      for (int64_t i = 0, first = add_images(*filters); i < filters->dim(0); ++i) list.push_back(first + i);
      out["filters"] = list;
    }
    out["images"] = images_;
    return out;
  }

 private:
  void check(bool ok, const char* what) const { RT_CHECK_AS(FormatError, ok, path_, ": ", what); }

  // The tensor of this name; null if there is none. -1: any size.
  const Tensor* find(const std::string& name, DType dtype, const std::vector<int64_t>& shape) const {
    for (const NamedTensor& t : file_.tensors) {
      if (t.name != name) continue;
      bool fits = t.tensor.dtype() == dtype && t.tensor.rank() == int(shape.size());
      for (int i = 0; fits && i < t.tensor.rank(); ++i)
        fits = shape[size_t(i)] < 0 ? i > 0 || t.tensor.dim(i) <= kMaxRows : shape[size_t(i)] == t.tensor.dim(i);
      RT_CHECK_AS(FormatError, fits, path_, ": the tensor '", name, "' has another type or shape than a snapshot's");
      return &t.tensor;
    }
    return nullptr;
  }
  const Tensor& need(const std::string& name, DType dtype, const std::vector<int64_t>& shape) const {
    const Tensor* const found = find(name, dtype, shape);
    RT_CHECK_AS(FormatError, found, path_, ": has no tensor '", name, "'");
    return *found;
  }
  int64_t index(int64_t i) const {
    check(i >= 0 && i < n_, "shows an image that is not there");
    return i;
  }
  Json label(int64_t image) const { return labels_ ? Json(labels_->data<int64_t>()[image]) : Json(); }

  // Adds the images to the list of all; returns the index of the first.
  int64_t add_images(const Tensor& images) {
    const int64_t first = int64_t(images_.size()), h = images.dim(1), w = images.dim(2), c = images.dim(3);
    check(h > 0 && w > 0 && (c == 1 || c == 3), "has images without pixels or of other than 1 or 3 channels");
    check(first + images.dim(0) <= kMaxImages, "has too many images");
    for (int64_t i = 0; i < images.dim(0); ++i)
      images_.push_back({{"width", w},
                         {"height", h},
                         {"channels", c},
                         {"pixels", base64(images.data<uint8_t>() + i * h * w * c, size_t(h * w * c))}});
    return first;
  }

  void add_confusion(Json& out, const Tensor& counts) const {
    const int64_t c = counts.dim(0), *const n = counts.data<int64_t>();
    struct Mistake {
      int64_t label, prediction, images;
    };
    std::vector<Mistake> mistakes;
    Json rows = Json::list();
    for (int64_t i = 0; i < c; ++i) {
      for (int64_t j = 0; j < c; ++j)
        if (i != j && n[i * c + j] > 0) mistakes.push_back({i, j, n[i * c + j]});
      if (c <= kMaxConfusionRows) rows.push_back(std::vector<int64_t>(n + i * c, n + (i + 1) * c));
    }
    if (c <= kMaxConfusionRows) out["confusion"] = rows;
    std::stable_sort(mistakes.begin(), mistakes.end(),
                     [](const Mistake& a, const Mistake& b) { return a.images > b.images; });
    if (mistakes.size() > size_t(kMaxMistakes)) mistakes.resize(size_t(kMaxMistakes));
    Json list = Json::list();
    for (const Mistake& m : mistakes) list.push_back(std::vector<int64_t>{m.label, m.prediction, m.images});
    out["mistakes"] = list;
  }

  Json samples(const Tensor& at) const {
    const int64_t n = at.dim(0);
    const Tensor &predicted = need("predicted", DType::i64, {n}), &confidence = need("confidence", DType::f32, {n});
    Json out = Json::list();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t image = index(at.data<int64_t>()[i]);
      out.push_back({{"image", image},
                     {"label", label(image)},
                     {"predicted", predicted.data<int64_t>()[i]},
                     {"confidence", double(confidence.data<float>()[i])}});
    }
    return out;
  }

  Json views(const Tensor& at) {
    const int64_t n = at.dim(0);
    std::vector<int64_t> first;  // of each kind of view
    for (size_t k = 0; find(concat("views.", k), DType::u8, {n, -1, -1, -1}); ++k)
      first.push_back(add_images(need(concat("views.", k), DType::u8, {n, -1, -1, -1})));
    Json out = Json::list();
    for (int64_t i = 0; i < n; ++i) {
      std::vector<int64_t> own;
      for (const int64_t f : first) own.push_back(f + i);
      out.push_back({{"image", index(at.data<int64_t>()[i])}, {"views", own}});
    }
    return out;
  }

  Json map(const Tensor& points, const JsonFields& about) const {
    const int64_t n = points.dim(0);
    const Tensor& labels = need("map_labels", DType::i64, {n});
    Json x = Json::list(), y = Json::list();
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(double(points.data<float>()[2 * i]));
      y.push_back(double(points.data<float>()[2 * i + 1]));
    }
    const auto label = labels.span<int64_t>();
    return {{"x", x},
            {"y", y},
            {"label", std::vector<int64_t>(label.begin(), label.end())},
            {"explained", about["explained"].get<std::vector<double>>()}};
  }

  Json neighbours(const Tensor& at) const {
    const int64_t n = at.dim(0);
    const Tensor& nearest = need("neighbours", DType::i64, {n, -1});
    const int64_t k = nearest.dim(1);
    check(n * k <= kMaxRows, "has too many neighbours");
    const Tensor& similarity = need("similarity", DType::f32, {n, k});
    Json out = Json::list();
    for (int64_t i = 0; i < n; ++i) {
      Json list = Json::list();
      for (int64_t j = i * k; j < (i + 1) * k; ++j) {
        const int64_t image = index(nearest.data<int64_t>()[j]);
        list.push_back(
            {{"image", image}, {"label", label(image)}, {"similarity", double(similarity.data<float>()[j])}});
      }
      const int64_t image = index(at.data<int64_t>()[i]);
      out.push_back({{"image", image}, {"label", label(image)}, {"nearest", list}});
    }
    return out;
  }

  std::string path_;
  Safetensors file_;
  Json about_, images_ = Json::list();
  int64_t n_ = 0;  // number of `images`
  const Tensor* labels_ = nullptr;
};

}  // namespace

std::string snapshot_name(const Snapshot& snapshot) {
  return snapshot.split == "test" ? "test" : fmt::format("{}{:04}", kEpoch, snapshot.epoch);
}

std::string snapshot_path(const std::string& run, const std::string& name) {
  return concat(run, "/", kSnapshots, "/", name, kSuffix);
}

int64_t epoch_of_snapshot(const std::string& name) {
  if (name == "test") return INT64_MAX;
  if (!name.starts_with(kEpoch)) return 0;
  const int64_t epoch = parse_number<int64_t>(name.substr(kEpoch.size())).value_or(0);
  return epoch > 0 && name == fmt::format("{}{:04}", kEpoch, epoch) ? epoch : 0;
}

std::vector<std::string> snapshots_in(const std::string& run) {
  const std::string folder = concat(run, "/", kSnapshots);
  std::vector<std::string> out;
  if (name_type(folder) != std::filesystem::file_type::directory) return out;
  for (const std::string& file : names_in(folder)) {
    if (!file.ends_with(kSuffix)) continue;
    const std::string name = file.substr(0, file.size() - std::string_view(kSuffix).size());
    if (epoch_of_snapshot(name) > 0 && name_type(concat(folder, "/", file)) == std::filesystem::file_type::regular)
      out.push_back(name);
  }
  std::sort(out.begin(), out.end(),
            [](const std::string& a, const std::string& b) { return epoch_of_snapshot(a) < epoch_of_snapshot(b); });
  return out;
}

void write_snapshot(const std::string& path, const Snapshot& s) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, part] : kParts)
    if ((s.*part).defined()) tensors.push_back({name, s.*part});
  for (size_t k = 0; k < s.views.size(); ++k) tensors.push_back({concat("views.", k), s.views[k]});
  const Json about{{"epoch", s.epoch},
                   {"step", s.step},
                   {"split", s.split},
                   {"classes", s.classes},
                   {"explained", std::vector<double>(s.explained.begin(), s.explained.end())}};
  write_safetensors(path, tensors, {{kAbout, about.text()}});
}

Json read_snapshot(const std::string& path) {
  std::error_code error;
  const auto bytes =
      name_type(path) == std::filesystem::file_type::regular ? std::filesystem::file_size(path, error) : 0;
  RT_CHECK_AS(FormatError, bytes > 0 && bytes <= uintmax_t(kLargest), path, ": not a file of 1 to ", kLargest,
              " bytes");
  Json out{{"name", std::filesystem::path(path).stem().string()}};
  out.update(SnapshotReader(path).json());
  return out;
}

}  // namespace ringtape
