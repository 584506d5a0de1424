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
  Layout(int64_t samples, const Shape& image)
      : labels_at(8 * samples), images_at(16 * samples), bytes(images_at + samples * image.size()) {}
  int64_t labels_at, images_at, bytes;
};

BatchMaker::BatchMaker(const Dataset& data, const LoaderConfig& config)
    : images_(data.images), labels_(data.labels), device_(config.device), augmentation_(config.augmentation),
      views_(config.views), seed_(config.seed) {
  const Shape& shape = images_.shape();
  const Augmentation& a = augmentation_;
  RT_CHECK(shape.rank() == 4, data.name);
  RT_CHECK(a.pad >= 0 && a.cutout >= 0 && a.rotation >= 0 && a.rotation <= 180, data.name);
  for (size_t v = 0; v < views_.size(); ++v) {
    check_view(views_[v], image(), views_[v].shape(image()));
    // Checks when the loader is created what would otherwise throw in its threads.
    RandomViewParams(views_[v], 0, 0, int(v), false);
  }
  RT_CHECK_AS(DeviceError, images_.device().type == DeviceType::cpu || images_.device() == device_, data.name,
              " lies on ", images_.device(), ", but batches are needed on ", device_, "; load it again");
  RT_CHECK(int64_t(data.mean.size()) == shape[3] && data.deviation.size() == data.mean.size(), data.name);
  table_ = byte_table(data, device_);
}

std::shared_ptr<Inbox> BatchMaker::inbox(int64_t samples) const {
  if (on_host() || resident()) return nullptr;
  return runtime(device_).inbox(size_t(Layout(samples, image()).bytes), device_.index);
}

void BatchMaker::make(Chunk& chunk, View images, View samples, bool gathered, int64_t epoch) const {
  const auto batch_of = [&](const Shape& image) { return Shape{samples.dims[0], image[0], image[1], image[2]}; };
  for (size_t v = 0; v < views_.size(); ++v) {
    chunk.views.emplace_back(batch_of(views_[v].shape(image())), DType::f32, device_);
    random_view(chunk.views[v], images, samples, table_,
                RandomViewParams(views_[v], seed_, uint64_t(epoch), int(v), gathered));
  }
  if (!views_.empty()) return;
  chunk.x = Tensor(batch_of(image()), DType::f32, device_);
  augment(chunk.x, images, samples, table_, AugmentParams(augmentation_, seed_, uint64_t(epoch), gathered));
}

void BatchMaker::gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const {
  if (resident()) return;
  const int64_t n = samples.size(), image_bytes = image().size();
  const int64_t* const sample = samples.data<int64_t>();
  const int64_t* const labels = labels_.data<int64_t>();
  int64_t* y = nullptr;
  if (on_host()) {
    chunk.y = Tensor({n}, DType::i64, device_);
    y = chunk.y.data<int64_t>();
    make(chunk, seen_from(images_, device_), seen_from(samples, device_), false, epoch);
  } else {
    const Layout at(n, image());
    chunk.bytes = runtime(device_).host_buffer(size_t(at.bytes), device_.index);
    auto* to = static_cast<uint8_t*>(chunk.bytes->data());
    std::memcpy(to, sample, size_t(at.labels_at));
    y = reinterpret_cast<int64_t*>(to + at.labels_at);
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + at.images_at + i * image_bytes, images_.data<uint8_t>() + sample[i] * image_bytes,
                  size_t(image_bytes));
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
  const Layout at(n, image());
  auto* const bytes = static_cast<uint8_t*>(inbox->receive(*chunk.bytes, size_t(at.bytes)));
  chunk.bytes.reset();
  const View images = view_of(bytes + at.images_at, DType::u8, images_.shape().with(0, n), device_);
  make(chunk, images, view_of(bytes, DType::i64, {n}, device_), true, epoch);
  runtime(device_).copy(View(chunk.y).data, device_, bytes + at.labels_at, device_, size_t(8 * n));
}

}  // namespace ringtape
