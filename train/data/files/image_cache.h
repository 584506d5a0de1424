#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "train/data/files/encoded_images.h"

namespace ringtape {

class MappedFile;

// The images of a set, decoded to one size and kept in a file in `folder`, which is mapped into memory, so that the
// system reads what is needed and forgets it again. If no file there belongs to the same images (by path, size and the
// time of the last change of content or inode), they are all decoded, and a file is written, whole or not at all; other
// processes that need the same one wait for it, by a lock on FILE.lock, and what killed ones left of it is removed. A
// file has a checksum of each image, which is compared before the image is first used.
class ImageCache {
 public:
  // `decode_all` writes all images to memory. Throws IoError with the path, also if the disk is full; UsageError for an
  // empty name of the folder.
  ImageCache(std::shared_ptr<const EncodedImages> images, ImageSize size, const std::string& folder,
             const std::function<void(uint8_t* to)>& decode_all);

  const Tensor& pixels() const { return pixels_; }  // u8 (N, H, W, 3), of the file: must not be written
  uint32_t checksum(int64_t i) const { return checksums_[size_t(i)]; }
  // Must be called before image i is read from `pixels`, and check() afterwards, by any thread. A damaged image is
  // decoded again, for this process, and the file removed, so that the next one makes it anew. They throw IoError if
  // the file cannot be read any more, FormatError for an image that is another one now.
  void check(int64_t i) const;
  void check() const;

 private:
  void mend(int64_t i) const;
  const uint8_t* at(int64_t i) const { return pixels_.data<uint8_t>() + i * bytes_each_; }

  std::shared_ptr<const EncodedImages> images_;
  ImageSize size_;
  int64_t bytes_each_;
  std::shared_ptr<MappedFile> file_;
  Tensor pixels_;
  std::vector<uint32_t> checksums_;
  std::unique_ptr<std::atomic<bool>[]> checked_;
  mutable std::mutex mending_;
  mutable bool mended_ = false;
};

}  // namespace ringtape
