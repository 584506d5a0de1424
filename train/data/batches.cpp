#include "train/data/batches.h"

#include <cstring>

#include "kernels/index_select.h"

namespace ringtape {

// (byte / 255 - mean) / deviation, in the order and precision of torchvision's ToTensor and Normalize.
static Tensor byte_table(const Dataset& data, Device device) {
  std::vector<float> table;
  for (size_t c = 0; c < data.mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte) table.push_back((float(byte) / 255.0f - data.mean[c]) / data.deviation[c]);
  return from_host(table, {int64_t(data.mean.size()), 256}, device);
}

// Shares the bytes: devices cpu:0, cpu:1 ... all use the host's memory.
static View seen_from(View x, Device cpu) {
  x.device = cpu;
  return x;
}

static View view_of(void* data, DType dtype, const Shape& shape, Device device) {
  View out;
  out.data = data;
  out.dtype = dtype;
  out.device = device;
  out.rank = shape.rank();
  const Shape strides = contiguous_strides(shape);
  for (int i = 0; i < out.rank; ++i) out.dims[i] = shape[i], out.strides[i] = strides[i];
  return out;
}

struct BatchMaker::Layout {
  Layout(int64_t samples, int64_t images, const Shape& image)
      : labels_at(8 * samples), images_at(16 * samples), bytes(images_at + images * image.size()) {}
  int64_t labels_at, images_at, bytes;
};

BatchMaker::BatchMaker(const Dataset& data, const LoaderConfig& config)
    : images_(data.images), labels_(data.labels), device_(config.device), augmentation_(config.augmentation),
      views_(config.views), transforms_(config.transforms), seed_(config.seed) {
  const Shape& shape = images_.shape();
  const Augmentation& a = augmentation_;
  RT_CHECK(shape.rank() == 4, data.name);
  RT_CHECK(a.pad >= 0 && a.cutout >= 0 && a.rotation >= 0 && a.rotation <= 180, data.name);
  for (size_t v = 0; v < views_.size(); ++v) {
    check_view(views_[v], image(), views_[v].shape(image()));
    // Checks when the loader is created what would otherwise throw in its threads.
    RandomViewParams(views_[v], 0, 0, int(v), false);
  }
  RT_CHECK_AS(DeviceError, images_.device().type == DeviceType::cpu || transforms_.empty(), data.name, " lies on ",
              images_.device(), ", but transforms are made on the host; load it again");
  RT_CHECK_AS(DeviceError, images_.device().type == DeviceType::cpu || images_.device() == device_, data.name,
              " lies on ", images_.device(), ", but batches are needed on ", device_, "; load it again");
  RT_CHECK(int64_t(data.mean.size()) == shape[3] && data.deviation.size() == data.mean.size(), data.name);
  table_ = byte_table(data, device_);
}

std::shared_ptr<Inbox> BatchMaker::inbox(int64_t samples) const {
  if (on_host() || resident()) return nullptr;
  return runtime(device_).inbox(size_t(Layout(samples, copies() * samples, image()).bytes), device_.index);
}

void BatchMaker::collect(uint8_t* to, std::span<const int64_t> samples, int64_t epoch) const {
  const Shape shape = image();
  for (int64_t view = 0; view < copies(); ++view)
    for (const int64_t sample : samples) {
      std::memcpy(to, images_.data<uint8_t>() + sample * shape.size(), size_t(shape.size()));
      for (size_t k = 0; k < transforms_.size(); ++k)
        transforms_[k]->apply({to, shape[0], shape[1], shape[2], sample, int(view), epoch, seed_, int(k)});
      to += shape.size();
    }
}

// With transforms, `images` has those of each view.
void BatchMaker::make(Chunk& chunk, View images, View samples, bool gathered, int64_t epoch) const {
  const auto batch_of = [&](const Shape& image) { return Shape{samples.dims[0], image[0], image[1], image[2]}; };
  for (size_t v = 0; v < views_.size(); ++v) {
    chunk.views.emplace_back(batch_of(views_[v].shape(image())), DType::f32, device_);
    random_view(chunk.views[v], images, samples, table_,
                RandomViewParams(views_[v], seed_, uint64_t(epoch), int(v), gathered));
    if (!transforms_.empty()) images.data = static_cast<char*>(images.data) + images.size();
  }
  if (!views_.empty()) return;
  chunk.x = Tensor(batch_of(image()), DType::f32, device_);
  augment(chunk.x, images, samples, table_, AugmentParams(augmentation_, seed_, uint64_t(epoch), gathered));
}

void BatchMaker::gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const {
  if (resident()) return;
  const int64_t n = samples.size();
  const int64_t* const sample = samples.data<int64_t>();
  const int64_t* const labels = labels_.data<int64_t>();
  int64_t* y = nullptr;
  if (on_host()) {
    chunk.y = Tensor({n}, DType::i64, device_);
    y = chunk.y.data<int64_t>();
    if (transforms_.empty()) make(chunk, seen_from(images_, device_), seen_from(samples, device_), false, epoch);
    else {
      const Tensor copied(images_.shape().with(0, copies() * n), DType::u8);
      collect(copied.data<uint8_t>(), {sample, size_t(n)}, epoch);
      const View first = copied.window(images_.shape().with(0, n), copied.strides());
      make(chunk, seen_from(first, device_), seen_from(samples, device_), true, epoch);
    }
  } else {
    const Layout at(n, copies() * n, image());
    chunk.bytes = runtime(device_).host_buffer(size_t(at.bytes), device_.index);
    auto* to = static_cast<uint8_t*>(chunk.bytes->data());
    std::memcpy(to, sample, size_t(at.labels_at));
    y = reinterpret_cast<int64_t*>(to + at.labels_at);
    collect(to + at.images_at, {sample, size_t(n)}, epoch);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = labels[sample[i]];
}

void BatchMaker::finish(Chunk& chunk, const Tensor& samples, int64_t epoch, Inbox* inbox) const {
  if (on_host()) return;
  const int64_t n = samples.size();
  chunk.y = Tensor({n}, DType::i64, device_);
  if (resident()) {
    make(chunk, images_, samples, false, epoch);
    const Shape all{1, labels_.size(), 1}, chosen{1, n, 1};
    index_select_forward(chunk.y.window(chosen, contiguous_strides(chosen)),
                         labels_.window(all, contiguous_strides(all)), samples);
    return;
  }
  const Layout at(n, copies() * n, image());
  auto* const bytes = static_cast<uint8_t*>(inbox->receive(*chunk.bytes, size_t(at.bytes)));
  chunk.bytes.reset();
  const View images = view_of(bytes + at.images_at, DType::u8, images_.shape().with(0, n), device_);
  make(chunk, images, view_of(bytes, DType::i64, {n}, device_), true, epoch);
  runtime(device_).copy(View(chunk.y).data, device_, bytes + at.labels_at, device_, size_t(8 * n));
}

}  // namespace ringtape
