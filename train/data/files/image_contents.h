#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "train/data/files/encoded_images.h"

namespace ringtape {

// Finds damage and other content, not forgery, in a tenth of a CRC's time: it is computed of every image.
uint32_t checksum_of(const void* bytes, size_t size);

// The checksums of the images of a set, as far as they are known: of the content of files as it was when it was first
// read, of images in a file of --image-cache of their pixels. For any number of threads.
class ImageContents {
 public:
  explicit ImageContents(int64_t images);
  int64_t size() const { return size_; }
  std::optional<uint32_t> of(int64_t i) const;
  int64_t known() const { return known_; }    // how many
  bool was_read(int64_t i) const;             // here, not only in an earlier part of the run
  bool expect(int64_t i, uint32_t checksum);  // from an earlier part of the run; false if it is known to be another
  bool read(int64_t i, uint32_t checksum);    // the same, of what was read now

 private:
  bool note(int64_t i, int64_t state);
  int64_t size_;
  std::unique_ptr<std::atomic<int64_t>[]> states_;  // a checksum, plus kRead if it was read here; -1: unknown
  std::atomic<int64_t> known_ = 0;
};

// The images of another set. Throws FormatError when one is read whose content is another than it was before. A
// checksum is computed when an image is first read, and again if its file was changed since it was listed.
class CheckedImages : public EncodedImages {
 public:
  CheckedImages(std::shared_ptr<const EncodedImages> from, std::shared_ptr<ImageContents> contents)
      : from_(std::move(from)), contents_(std::move(contents)) {}

  int64_t size() const override { return from_->size(); }
  std::string name(int64_t i) const override { return from_->name(i); }
  int64_t bytes(int64_t i) const override { return from_->bytes(i); }
  int64_t changed(int64_t i) const override { return from_->changed(i); }
  int64_t changed_now(int64_t i) const override { return from_->changed_now(i); }
  std::string read(int64_t i) const override;
  std::string path(int64_t i) const override { return from_->path(i); }
  int64_t shard(int64_t i) const override { return from_->shard(i); }
  ImageReading reading() const override { return from_->reading(); }

 private:
  std::shared_ptr<const EncodedImages> from_;
  std::shared_ptr<ImageContents> contents_;
};

}  // namespace ringtape
