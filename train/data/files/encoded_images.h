#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/data/image/image_file.h"

namespace ringtape {

// Images as files have them, which are read and decoded when they are needed. All functions may be called by several
// threads at once; they throw IoError for what cannot be read, FormatError for damaged images, with the path.
class EncodedImages {
 public:
  virtual ~EncodedImages() = default;
  virtual int64_t size() const = 0;  // number of images
  // Of image i in [0, size()): its name within the data set, its size, when it was changed (a number that differs then)
  // and its content.
  virtual std::string name(int64_t i) const = 0;
  virtual int64_t bytes(int64_t i) const = 0;
  virtual int64_t changed(int64_t i) const = 0;
  virtual int64_t changed_now(int64_t i) const { return changed(i); }  // as its file is now, not when it was listed
  virtual std::string read(int64_t i) const = 0;
  virtual std::string path(int64_t i) const = 0;       // for messages
  virtual int64_t shard(int64_t) const { return -1; }  // the archive that it lies in, from 0 on; -1: a file of its own
  virtual ImageReading reading() const { return {}; }
};

// When a file's content or inode was last changed, in nanoseconds; 0 if it is not there.
int64_t time_of_change(const std::string& path);

// Many names, one behind the other in memory: there may be millions.
class NameList {
 public:
  void add(std::string_view name) { all_ += name, ends_.push_back(all_.size()); }
  int64_t size() const { return int64_t(ends_.size()); }
  std::string operator[](int64_t i) const;

 private:
  std::string all_;
  std::vector<size_t> ends_;
};

// Writes image i, (height, width, 3) bytes, scaled and cropped as by decode_image_as.
void decode_as(const EncodedImages& images, int64_t i, ImageSize size, uint8_t* to);

// Images as one file each: ROOT/NAME.
class ImageFiles : public EncodedImages {
 public:
  explicit ImageFiles(std::string root) : root_(std::move(root)) {}
  void add(std::string_view name, int64_t bytes, int64_t changed) {
    names_.add(name), bytes_.push_back(bytes), changed_.push_back(changed);
  }

  int64_t size() const override { return names_.size(); }
  std::string name(int64_t i) const override { return names_[i]; }
  int64_t bytes(int64_t i) const override { return bytes_[size_t(i)]; }
  int64_t changed(int64_t i) const override { return changed_[size_t(i)]; }
  int64_t changed_now(int64_t i) const override { return time_of_change(path(i)); }
  std::string read(int64_t i) const override;
  std::string path(int64_t i) const override { return root_ + "/" + name(i); }

 private:
  std::string root_;
  NameList names_;
  std::vector<int64_t> bytes_, changed_;
};

// Images within archives: `shards` are the paths of these, in order.
class ShardImages : public EncodedImages {
 public:
  explicit ShardImages(std::vector<std::string> shards);
  // Adds an image of the last shard that has images, or of a later one: `bytes` from `offset` on.
  void add(int64_t shard, std::string_view name, int64_t offset, int64_t bytes);

  int64_t size() const override { return names_.size(); }
  std::string name(int64_t i) const override;
  int64_t bytes(int64_t i) const override { return places_[size_t(i)].bytes; }
  int64_t changed(int64_t i) const override { return changed_[size_t(shard(i))] + places_[size_t(i)].offset; }
  int64_t changed_now(int64_t i) const override {
    return time_of_change(shards_[size_t(shard(i))]) + places_[size_t(i)].offset;
  }
  std::string read(int64_t i) const override;
  std::string path(int64_t i) const override { return shards_[size_t(shard(i))] + ":" + names_[i]; }
  int64_t shard(int64_t i) const override { return places_[size_t(i)].shard; }

 private:
  struct Place {
    int64_t shard, offset, bytes;
  };
  std::vector<std::string> shards_;
  std::vector<int64_t> changed_;  // of each shard
  NameList names_;
  std::vector<Place> places_;
};

// Some of the images of another set, in any order.
class ChosenImages : public EncodedImages {
 public:
  ChosenImages(std::shared_ptr<const EncodedImages> from, std::vector<int64_t> chosen, const ImageReading& reading)
      : from_(std::move(from)), chosen_(std::move(chosen)), reading_(reading) {}

  int64_t size() const override { return int64_t(chosen_.size()); }
  std::string name(int64_t i) const override { return from_->name(chosen_[size_t(i)]); }
  int64_t bytes(int64_t i) const override { return from_->bytes(chosen_[size_t(i)]); }
  int64_t changed(int64_t i) const override { return from_->changed(chosen_[size_t(i)]); }
  int64_t changed_now(int64_t i) const override { return from_->changed_now(chosen_[size_t(i)]); }
  std::string read(int64_t i) const override { return from_->read(chosen_[size_t(i)]); }
  std::string path(int64_t i) const override { return from_->path(chosen_[size_t(i)]); }
  int64_t shard(int64_t i) const override { return from_->shard(chosen_[size_t(i)]); }
  ImageReading reading() const override { return reading_; }

 private:
  std::shared_ptr<const EncodedImages> from_;
  std::vector<int64_t> chosen_;
  ImageReading reading_;
};

}  // namespace ringtape
