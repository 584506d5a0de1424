#include "train/data/encoded_images.h"

#include "train/io/file.h"

namespace ringtape {

void decode_as(const EncodedImages& images, int64_t i, ImageSize size, uint8_t* to) {
  copy_pixels(decode_image_as(images.read(i), images.path(i), size), 3, to);
}

void ImageFiles::add(const std::string& name, int64_t bytes) {
  names_ += name;
  ends_.push_back(names_.size());
  bytes_.push_back(bytes);
}

std::string ImageFiles::name(int64_t i) const {
  const size_t begin = i > 0 ? ends_[size_t(i - 1)] : 0;
  return names_.substr(begin, ends_[size_t(i)] - begin);
}

std::string ImageFiles::read(int64_t i) const { return read_file(path(i)); }

}  // namespace ringtape
