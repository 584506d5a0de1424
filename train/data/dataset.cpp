#include "train/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "core/env.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/registry.h"
#include "train/data/files/encoded_images.h"
#include "train/data/files/image_cache.h"
#include "train/data/files/imagefolder.h"
#include "train/data/files/webdataset.h"
#include "train/data/sets/cifar.h"
#include "train/data/sets/mnist.h"
#include "train/data/sets/shapes.h"

namespace ringtape {

static std::vector<DatasetEntry>& registered_datasets() {
  static std::vector<DatasetEntry> all = {
      {"mnist", "handwritten digits, 28x28 grey, 60,000 + 10,000, idx files", false, 5000, "mlp", load_mnist},
      {"fashion_mnist", "articles of clothing, 28x28 grey, 60,000 + 10,000, idx files", false, 5000, "mlp",
       load_fashion_mnist},
      {"cifar10", "photographs of ten kinds, 32x32 RGB, 50,000 + 10,000, binary version", false, 5000, "mlp",
       load_cifar10},
      {"cifar100", "photographs of a hundred kinds, 32x32 RGB, 50,000 + 10,000, binary version", false, 5000, "mlp",
       load_cifar100},
      {"imagefolder", "image files, DIR/train/CLASS and DIR/test/CLASS, or DIR/CLASS", false, 0, "resnet18",
       load_imagefolder, ImageFolderOptions{}},
      {"webdataset", "images and .cls labels in tar archives, DIR/train/*.tar and DIR/test/*.tar, or DIR/*.tar", false,
       0, "resnet18", load_webdataset, WebDatasetOptions{}},
      {"shapes", "coloured shapes on textures, 32x32 RGB, generated: any size, no files", true, 0, "mlp", load_shapes,
       ShapesOptions{}},
  };
  return all;
}

std::span<const DatasetEntry> datasets() { return registered_datasets(); }
RegisterDataset::RegisterDataset(const DatasetEntry& entry) { add_entry(registered_datasets(), entry); }

void check_dataset(const Dataset& data) {
  const Tensor &images = data.images, &labels = data.labels;
  RT_CHECK_AS(ShapeError, labels.defined() && labels.rank() == 1, data.name, ": expected labels (N), got ",
              labels.shape());
  RT_CHECK_AS(DTypeError, labels.dtype() == DType::i64, data.name, ": expected labels of i64, got ", labels.dtype(),
              "; use cast(labels, DType::i64)");
  if (images.defined()) {
    RT_CHECK_AS(ShapeError, images.rank() == 4 && images.dim(0) == labels.size(), data.name,
                ": expected images (N, H, W, C) for ", labels.size(), " labels, got ", images.shape());
    RT_CHECK_AS(DTypeError, images.dtype() == DType::u8, data.name, ": expected images of bytes, u8, got ",
                images.dtype());
  }
  RT_CHECK_AS(ShapeError, labels.contiguous() && (!images.defined() || images.contiguous()), data.name,
              ": images and labels must lie together in memory; use contiguous(x)");
  const int64_t channels = data.image().rank() == 3 ? data.image()[2] : 0;
  RT_CHECK_AS(ShapeError,
              channels > 0 && int64_t(data.mean.size()) == channels && data.deviation.size() == data.mean.size(),
              data.name, ": expected a mean and a deviation for each of ", channels, " channels, got ",
              data.mean.size(), " and ", data.deviation.size());
  for (const float x : data.deviation)
    RT_CHECK_AS(UsageError, x > 0 && std::isfinite(x), data.name, ": a deviation of ", x,
                "; expected a number above 0");
}

void visit(Fields& f, DataOptions& o) {
  f("data", o.set.name,
    {.help = "data set",
     .unit = "NAME",
     .choices = [] { return names_of(datasets()); },
     .scope = FieldScope::weights,
     .selects = true});
  f("data-dir", o.dir,
    {.help = "folder of the data set's files",
     .unit = "DIR",
     .automatic = "RINGTAPE_DATA_DIR, else ./data",
     .scope = FieldScope::rank,
     .may_change = true,
     .evaluates = true});
  f("val-size", o.val_size,
    {.help = "training images held out for validation; 0: none",
     .unit = "N",
     .range = kCount,
     .automatic = "5000 of 60,000, else a tenth",
     .with_labels = true});
  f("train-fraction", o.train_fraction,
    {.help = "fraction of the training images of each class to learn from, at least one of each: few labels",
     .unit = "X",
     .range = {.low = 0, .high = 1, .above_low = true}});
  f("balanced-sampling", o.balanced,
    {.help = "draw the training images of an epoch with replacement, each class equally often", .with_labels = true});
  f("shuffle-buffer", o.shuffle_buffer,
    {.help = "read files in order, in an epoch's order of archives, and draw each image from the next N; 0: from all",
     .unit = "N",
     .range = kCount,
     .automatic = "10000 for webdataset, else 0"});
  f("normalize", o.normalize,
    {.help = "normalise images by mean and deviation of the data set, or of ImageNet",
     .unit = "WHICH",
     .choices =
         [] {
           return std::vector<std::string>{"dataset", "imagenet"};
         },
     .scope = FieldScope::weights});
}

const DatasetEntry& find_dataset(const std::string& name) { return find_entry(datasets(), name, "data set"); }

std::string data_root(const DataRequest& request) {
  const std::string& given = request.dir.empty() ? env::data_dir() : request.dir;
  return given.empty() ? "./data" : given;
}

std::string how_to_get(const std::string& name) {
  return concat("`ringtape data download ", name,
                " --data-dir DIR` downloads it, --data-dir or RINGTAPE_DATA_DIR names its folder; the data set "
                "shapes needs no files");
}

int64_t default_val_size(const DatasetEntry& entry, int64_t n) {
  return entry.val_size > 0 && 2 * entry.val_size <= n ? entry.val_size : n / 10;
}

void Dataset::copy_image(int64_t i, uint8_t* to) const {
  const Shape s = image();
  if (is_encoded()) return decode_as(*encoded, i, {s[0], s[1]}, to);
  if (cache) cache->check(i);
  const Tensor one = images.window(s, contiguous_strides(s), i * s.size()).copy_to(Device{});
  std::copy_n(one.data<uint8_t>(), s.size(), to);
  if (cache) cache->check();
}

// Counts each byte value, so that the sums do not depend on threads.
PixelStatistics pixel_statistics(const Tensor& images) {
  const auto channels = size_t(images.dim(3));
  const int64_t pixels = images.size() / images.dim(3);
  using Counts = std::vector<std::array<int64_t, 256>>;
  Counts counts(channels);
  std::mutex mutex;
  parallel_for(pixels, 1 << 16, [&](int64_t begin, int64_t end) {
    Counts part(channels);
    const uint8_t* byte = images.data<uint8_t>() + begin * int64_t(channels);
    for (int64_t i = begin; i < end; ++i)
      for (size_t c = 0; c < channels; ++c) ++part[c][*byte++];
    const std::lock_guard lock(mutex);
    for (size_t c = 0; c < channels; ++c)
      for (size_t b = 0; b < 256; ++b) counts[c][b] += part[c][b];
  });
  PixelStatistics out;
  for (const auto& count : counts) {
    double sum = 0, squares = 0;
    int levels = 0;
    for (int b = 0; b < 256; ++b) {
      const double x = double(b) / 255, n = double(count[size_t(b)]);
      sum += n * x, squares += n * x * x;
      if (n > 0) ++levels, out.highest = std::max(out.highest, b);
    }
    const double mean = sum / double(pixels), variance = levels > 1 ? squares / double(pixels) - mean * mean : 0;
    out.mean.push_back(float(mean));
    out.deviation.push_back(float(std::sqrt(std::max(variance, 0.0))));
  }
  return out;
}

Holdout holdout(int64_t n, int64_t val_size, uint64_t seed) {
  RT_CHECK_AS(UsageError, val_size >= 0 && val_size < n, "--val-size ", val_size, ": the data set has ", n,
              " training images, and at least one must be left to train on");
  const std::vector<int64_t> order = permutation(n, seed, Stream::split, 0);
  const auto cut = order.end() - val_size;
  return {{order.begin(), cut}, {cut, order.end()}};
}

std::vector<int64_t> fraction_of(const std::vector<int64_t>& samples, const Tensor& labels, int classes,
                                 double fraction) {
  if (fraction >= 1) return samples;
  const Tensor host = labels.copy_to(Device{});
  const std::span<const int64_t> label = host.span<int64_t>();
  std::vector<double> left(size_t(std::max(classes, 1)), 0);  // of each class; images without labels have label 0
  for (const int64_t i : samples) ++left[size_t(label[size_t(i)])];
  for (double& count : left) count = std::max(1.0, std::round(count * fraction));
  std::vector<int64_t> out;
  for (const int64_t i : samples)
    if (left[size_t(label[size_t(i)])]-- > 0) out.push_back(i);
  return out;
}

void normalize_as_imagenet(Splits& data) {
  data.each([](Dataset& set) {
    RT_CHECK_AS(UsageError, set.image()[2] == 3, "--normalize imagenet: ", set.name, " has images of ", set.image()[2],
                " channels; expected 3");
    set.mean = {0.485f, 0.456f, 0.406f}, set.deviation = {0.229f, 0.224f, 0.225f};
  });
}

}  // namespace ringtape
