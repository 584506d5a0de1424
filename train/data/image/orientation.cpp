#include <utility>

#include "train/data/image/image_reader.h"

namespace ringtape {
namespace {

// A part of a picture, with the axes whose order changes counted from the other end.
ImagePart mirrored(ImagePart part, ImageSize size, bool rows, bool columns) {
  if (rows) part.top = size.height - part.top - part.height;
  if (columns) part.left = size.width - part.left - part.width;
  return part;
}

ImagePart transposed(const ImagePart& part) { return {part.left, part.top, part.width, part.height}; }

class TurnedReader : public ImageReader {
 public:
  TurnedReader(std::unique_ptr<ImageReader> reader, Orientation orientation)
      : reader_(std::move(reader)), orientation_(orientation) {}

  ImageSize size() const override { return orientation_.seen(reader_->size()); }
  // Pixels of a reduced image begin at the first row and column that are stored, and the last ones may be incomplete.
  int64_t most_reduced() const override {
    const auto [height, width] = reader_->size();
    const bool whole = height % reader_->most_reduced() == 0 && width % reader_->most_reduced() == 0;
    return whole ? reader_->most_reduced() : 1;
  }

  ImagePart read(const ImagePart& part, int64_t by, Image& to) override {
    const auto [height, width] = reader_->size();
    const ImageSize stored{height / by, width / by};
    const bool rows = orientation_.last_row(), columns = orientation_.last_column();
    const ImagePart held =
        reader_->read(mirrored(orientation_.turned() ? transposed(part) : part, stored, rows, columns), by, stored_);
    ImagePart out = mirrored(held, stored, rows, columns);
    if (orientation_.turned()) out = transposed(out);
    cut_seen(stored_.rgb.data(), stored_.size, 3, orientation_, {0, 0, out.height, out.width}, to);
    return out;
  }

 private:
  std::unique_ptr<ImageReader> reader_;
  Orientation orientation_;
  Image stored_;
};

}  // namespace

ImagePart cut_seen(const uint8_t* stored, ImageSize size, int64_t pixel, Orientation o, const ImagePart& part,
                   Image& to) {
  int64_t down = pixel * size.width, across = pixel;
  if (o.last_row()) stored += (size.height - 1) * down, down = -down;
  if (o.last_column()) stored += (size.width - 1) * across, across = -across;
  if (o.turned()) std::swap(down, across);
  return cut(stored, down, across, part, to);
}

std::unique_ptr<ImageReader> turn(std::unique_ptr<ImageReader> reader, Orientation orientation) {
  if (orientation.value == 1) return reader;
  return std::make_unique<TurnedReader>(std::move(reader), orientation);
}

}  // namespace ringtape
