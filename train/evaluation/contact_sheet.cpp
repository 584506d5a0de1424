#include "train/evaluation/contact_sheet.h"

#include <algorithm>
#include <vector>

#include "train/evaluation/pixels.h"

namespace ringtape {
namespace {

constexpr int64_t kGap = 4;  // pixels between images

// A grid of images, white between them.
class Sheet {
 public:
  Sheet(int64_t rows, int64_t columns, int64_t height, int64_t width, int64_t channels)
      : height_(height + kGap), width_(width + kGap),
        pixels_({rows * height_ + kGap, columns * width_ + kGap, channels}, DType::u8) {
    std::ranges::fill(pixels_.span<uint8_t>(), uint8_t{255});
  }
  // image: u8 (H, W, C), no larger than a cell.
  void put(int64_t row, int64_t column, const uint8_t* image, int64_t height, int64_t width) {
    const int64_t c = pixels_.dim(2), line = pixels_.dim(1) * c;
    uint8_t* to = pixels_.data<uint8_t>() + (row * height_ + kGap) * line + (column * width_ + kGap) * c;
    for (int64_t y = 0; y < height; ++y, to += line, image += width * c) std::copy_n(image, width * c, to);
  }
  const Tensor& pixels() const { return pixels_; }

 private:
  int64_t height_, width_;
  Tensor pixels_;
};

}  // namespace

Tensor contact_sheet(const Dataset& data, LoaderConfig config, int64_t rows, int64_t columns) {
  rows = std::min(rows, data.size());
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < rows; ++i) samples.push_back(i * data.size() / rows);
  const Shape image = data.image();
  const Tensor originals({rows, image[0], image[1], image[2]}, DType::u8);
  for (int64_t i = 0; i < rows; ++i) data.copy_image(samples[size_t(i)], originals.data<uint8_t>() + i * image.size());
  std::vector<Tensor> shown = {smaller(originals, kSheetSide)};  // u8 (rows, H, W, C) each
  config.batch_size = rows, config.device = data.images.device();
  const Loader loader(data, samples, config);
  for (int64_t epoch = 0; int64_t(shown.size()) <= columns; ++epoch)
    for (const Batch& batch : loader.epoch(epoch))
      for (const Tensor& view : batch.images()) shown.push_back(smaller(pixels_of(view, data), kSheetSide));
  shown.resize(size_t(columns + 1));
  int64_t height = 0, width = 0;
  for (const Tensor& x : shown) height = std::max(height, x.dim(1)), width = std::max(width, x.dim(2));
  Sheet sheet(rows, columns + 1, height, width, image[2]);
  for (size_t column = 0; column < shown.size(); ++column)
    for (int64_t row = 0; row < rows; ++row) {
      const Tensor& x = shown[column];
      sheet.put(row, int64_t(column), x.data<uint8_t>() + row * x.dim(1) * x.dim(2) * x.dim(3), x.dim(1), x.dim(2));
    }
  return sheet.pixels();
}

}  // namespace ringtape
