#include "train/data/batches.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/parallel.h"
#include "kernels/image_policy.h"
#include "kernels/index_select.h"
#include "train/data/files/encoded_images.h"
#include "train/data/files/image_cache.h"
#include "train/data/normalize.h"
#include "train/data/order.h"

namespace ringtape {

static Tensor levels(int64_t channels, Device device) {
  std::vector<uint8_t> table(size_t(channels * 256));
  for (size_t i = 0; i < table.size(); ++i) table[i] = uint8_t(i);
  return from_host(table, {channels, 256}, device);
}

// Shares the bytes: devices cpu:0, cpu:1 ... all use the host's memory.
static View seen_from(View x, Device cpu) {
  x.device = cpu;
  return x;
}

static View view_of(void* data, DType dtype, const Shape& shape, Device device) {
  View out{.data = data, .dtype = dtype, .device = device, .rank = shape.rank()};
  const Shape strides = contiguous_strides(shape);
  for (int i = 0; i < out.rank; ++i) out.dims[i] = shape[i], out.strides[i] = strides[i];
  return out;
}

struct BatchMaker::Layout {
  Layout(int64_t samples, int64_t copied)
      : labels_at(8 * samples), images_at(16 * samples), bytes(images_at + samples * copied) {}
  int64_t labels_at, images_at, bytes;
};

BatchMaker::BatchMaker(const Dataset& data, const LoaderConfig& config)
    : images_(data.images), labels_(data.labels), encoded_(data.is_encoded() ? data.encoded : nullptr),
      interpolation_(data.encoded ? data.encoded->reading().interpolation : Interpolation::bilinear),
      cache_(data.images.defined() && data.images.device() == Device{} ? data.cache : nullptr), image_(data.image()),
      device_(config.device), augmentation_(config.augmentation),
      changes_(config.views.empty() ? config.changes : ImageChanges{}), views_(config.views), crops_(config.views),
      transforms_(config.transforms), seed_(config.seed), balanced_(config.balanced),
      own_batch_(own_rows(config.batch_size, config).size()) {
  const Augmentation& a = augmentation_;
  RT_CHECK(a.pad >= 0 && a.cutout >= 0 && a.rotation >= 0 && a.rotation <= 180, data.name);
  RT_CHECK_AS(UsageError, !a.reflect || a.pad < std::min(image_[0], image_[1]), "--crop-padding ", a.pad,
              ": more than images of ", image_[0], "x", image_[1], " can mirror");
  for (size_t v = 0; v < views_.size(); ++v) {
    const Shape view = views_[v].shape(image_);
    check_view(views_[v], image_, view);
    // Checks when the loader is created what would otherwise throw in its threads.
    RandomViewParams(views_[v], 0, 0, int(v), false);
    if (encoded_ || !transforms_.empty()) copies_.push_back(encoded_ ? view : image_);
  }
  if (copies_.empty()) copies_ = {image_};
  if (changes_.crops()) crops_ = {changes_.view};
  if (views_.empty()) stages_ = make_stages();
  if (!encoded_) {
    const Device where = images_.device();
    RT_CHECK_AS(DeviceError, where.type == DeviceType::cpu || (transforms_.empty() && !balanced_), data.name,
                " lies on ", where, ", but transforms and draws of images are made on the host; load it again");
    RT_CHECK_AS(DeviceError, where.type == DeviceType::cpu || where == device_, data.name, " lies on ", where,
                ", but batches are needed on ", device_, "; load it again");
  }
  table_ = byte_table(data.mean, data.deviation, device_);
  if (stages_.size() > 1) bytes_ = levels(image_[2], device_);
}

int64_t BatchMaker::copied() const {
  return std::transform_reduce(copies_.begin(), copies_.end(), int64_t{0}, std::plus(),
                               [](const Shape& s) { return s.size(); });
}

int64_t BatchMaker::waiting_bytes() const {
  if (!on_host()) return resident() ? 0 : copied();
  int64_t elements = views_.empty() ? image_.size() : 0;
  for (const ViewAugmentation& view : views_) elements += view.shape(image_).size();
  return elements * int64_t(sizeof(float));
}

std::shared_ptr<Inbox> BatchMaker::inbox(int64_t samples) const {
  if (on_host() || resident()) return nullptr;
  return runtime(device_).inbox(size_t(Layout(samples, copied()).bytes), device_.index);
}

void BatchMaker::decode(int64_t sample, int64_t epoch, std::span<uint8_t* const> copies) const {
  if (!cuts()) return decode_as(*encoded_, sample_of(sample), {image_[0], image_[1]}, copies[0]);
  const std::string content = encoded_->read(sample_of(sample));
  EncodedImage image(content, encoded_->path(sample_of(sample)), encoded_->reading().upright);
  std::vector<ImageCrop> crops;
  for (size_t i = 0; i < crops_.size(); ++i) {
    const RandomViewParams p(crops_[i], seed_, uint64_t(epoch), int(i), true);
    const RandomView v = draw_view(p, sample, image.size().height, image.size().width);
    crops.push_back({.part = {v.top, v.left, v.height, v.width},
                     .size = {copies_[i][0], copies_[i][1]},
                     .to = copies[i],
                     .how = interpolation_});
  }
  image.crop(crops);
}

void BatchMaker::collect(uint8_t* to, std::span<const int64_t> samples, int64_t epoch) const {
  const auto n = int64_t(samples.size());
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      std::vector<uint8_t*> copies;
      uint8_t* first = to;
      for (const Shape& s : copies_) copies.push_back(first + b * s.size()), first += n * s.size();
      const int64_t sample = samples[size_t(b)];
      if (encoded_) decode(sample, epoch, copies);
      for (size_t v = 0; v < copies.size(); ++v) {
        const Shape& s = copies_[v];
        if (!encoded_) std::memcpy(copies[v], images_.data<uint8_t>() + sample_of(sample) * s.size(), size_t(s.size()));
        for (size_t k = 0; k < transforms_.size(); ++k)
          transforms_[k]->apply({copies[v], s[0], s[1], s[2], sample, int(v), epoch, seed_, int(k)});
      }
    }
  });
}

void BatchMaker::make(Chunk& chunk, uint8_t* gathered, View samples, int64_t epoch) const {
  const int64_t n = samples.dims[0];
  const auto batch_of = [&](const Shape& image) { return Shape{n, image[0], image[1], image[2]}; };
  auto next_copy = [&, at = gathered](size_t copy) mutable {
    if (!gathered) return images_.device() == device_ ? View(images_) : seen_from(images_, device_);
    const View out = view_of(at, DType::u8, batch_of(copies_[copy]), device_);
    if (copies_.size() > 1) at += out.size();
    return out;
  };
  for (size_t v = 0; v < views_.size(); ++v) {
    chunk.views.emplace_back(batch_of(views_[v].shape(image_)), DType::f32, device_);
    RandomViewParams params(views_[v], seed_, uint64_t(epoch), int(v), gathered);
    params.how = interpolation_, params.precropped = cuts();
    random_view(chunk.views[v], next_copy(copies_.size() > 1 ? v : 0), samples, table_, params);
  }
  if (!views_.empty()) return;
  chunk.x = changed(next_copy(0), samples, epoch, gathered);
  if (mixes()) chunk.x = mixed(chunk, chunk.x, epoch);
}

// The kernels that images without views pass through; also checks their settings. Cutout comes last, on normalised
// images: after a policy, that is not within the augmentation.
std::vector<BatchMaker::Stage> BatchMaker::make_stages() {
  std::vector<Stage> out;
  const ImageChanges& c = changes_;
  const uint64_t seed = seed_;
  const Interpolation how = interpolation_;
  const bool whole = cuts() || !c.crops(), chosen = c.policy.kind != PolicyKind::none;
  RandomViewParams(c.view, 0, 0, 0, false);
  if (c.crops() || c.recolours()) {
    check_view(c.view, image_, image_);
    out.push_back([=, view = c.view](View y, View images, View samples, View table, uint64_t epoch, bool gathered) {
      RandomViewParams params(view, seed, epoch, 0, gathered);
      params.how = how, params.precropped = whole;
      random_view(y, images, samples, table, params);
    });
  }
  Augmentation a = augmentation_;
  if (chosen) a.cutout = 0;
  erasing_ = {c.erasing, augmentation_.cutout - a.cutout};
  EraseParams(erasing_, 0, 0);
  if (a.pad > 0 || a.flip || a.alternate_flip || a.rotation > 0 || a.cutout > 0 || (out.empty() && !chosen))
    out.push_back([=](View y, View images, View samples, View table, uint64_t epoch, bool gathered) {
      augment(y, images, samples, table, AugmentParams(a, seed, epoch, gathered));
    });
  if (chosen) {
    check_policy(image_);
    const PolicyParams checked(c.policy, image_[0], image_[1], seed, 0, true);
    out.push_back([=](View y, View images, View samples, View table, uint64_t epoch, bool gathered) {
      image_policy(y, images, samples, table, checked.of_epoch(epoch, gathered));
    });
  }
  (void)mixture(0, 0);
  return out;
}

Tensor BatchMaker::changed(View images, View samples, int64_t epoch, bool gathered) const {
  const Shape shape{samples.dims[0], image_[0], image_[1], image_[2]};
  Tensor y;
  for (size_t k = 0; k < stages_.size(); ++k) {
    const bool last = k + 1 == stages_.size();
    Tensor made(shape, last ? DType::f32 : DType::u8, device_);
    stages_[k](made, k == 0 ? images : View(y), samples, last ? table_ : bytes_, uint64_t(epoch), gathered || k > 0);
    y = std::move(made);
  }
  if (erasing_.probability > 0 || erasing_.cutout > 0) erase(y, samples, EraseParams(erasing_, seed_, uint64_t(epoch)));
  return y;
}

Mixture BatchMaker::mixture(int64_t epoch, int64_t batch) const {
  return draw_mixture(changes_.mixing, image_[0], image_[1], seed_, uint64_t(epoch), batch);
}

Tensor BatchMaker::mixed(const Chunk& chunk, const Tensor& x, int64_t epoch) const {
  const auto part = [](const Tensor& all, int64_t begin, int64_t rows) {
    return all.window(all.shape().with(0, rows), all.strides(), begin * all.strides()[0]);
  };
  const int64_t made = own_batch_ + 1, batches = (x.dim(0) + made - 1) / made;
  Tensor y(x.shape().with(0, x.dim(0) - batches), DType::f32, device_);
  for (int64_t k = 0; k < batches; ++k) {
    const int64_t rows = std::min(made, x.dim(0) - k * made);
    mix(part(y, k * own_batch_, rows - 1), part(x, k * made, rows), mixture(epoch, chunk.first + k));
  }
  return y;
}

void BatchMaker::gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const {
  if (resident()) return;
  const int64_t n = samples.size();
  const std::span<const int64_t> all = samples.span<int64_t>();
  int64_t* y = nullptr;
  for (int64_t i = 0; cache_ && i < n; ++i) cache_->check(sample_of(all[size_t(i)]));
  if (on_host()) {
    chunk.y = Tensor({n}, DType::i64, device_);
    y = chunk.y.data<int64_t>();
    Tensor bytes;
    if (gathers()) {
      bytes = Tensor({n * copied()}, DType::u8);
      collect(bytes.data<uint8_t>(), all, epoch);
    }
    make(chunk, bytes.defined() ? bytes.data<uint8_t>() : nullptr, seen_from(samples, device_), epoch);
  } else {
    const Layout at(n, copied());
    chunk.bytes = runtime(device_).host_buffer(size_t(at.bytes), device_.index);
    auto* to = static_cast<uint8_t*>(chunk.bytes->data());
    std::memcpy(to, all.data(), size_t(at.labels_at));
    y = reinterpret_cast<int64_t*>(to + at.labels_at);
    collect(to + at.images_at, all, epoch);
  }
  const int64_t* const labels = labels_.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) y[i] = labels[sample_of(all[size_t(i)])];
  if (cache_) cache_->check();
}

void BatchMaker::finish(Chunk& chunk, const Tensor& samples, int64_t epoch, Inbox* inbox) const {
  if (on_host()) return;
  const int64_t n = samples.size();
  chunk.y = Tensor({n}, DType::i64, device_);
  if (resident()) {
    make(chunk, nullptr, samples, epoch);
    const Shape all{1, labels_.size(), 1}, chosen{1, n, 1};
    index_select_forward(chunk.y.window(chosen, contiguous_strides(chosen)),
                         labels_.window(all, contiguous_strides(all)), samples);
    return;
  }
  const Layout at(n, copied());
  auto* const bytes = static_cast<uint8_t*>(inbox->receive(*chunk.bytes, size_t(at.bytes)));
  chunk.bytes.reset();
  make(chunk, bytes + at.images_at, view_of(bytes, DType::i64, {n}, device_), epoch);
  runtime(device_).copy(View(chunk.y).data, device_, bytes + at.labels_at, device_, size_t(8 * n));
}

}  // namespace ringtape
