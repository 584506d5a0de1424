#include "train/data/files/encoded_images.h"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "train/io/file.h"

namespace ringtape {

void decode_as(const EncodedImages& images, int64_t i, ImageSize size, uint8_t* to) {
  copy_pixels(decode_image_as(images.read(i), images.path(i), size, images.reading()), 3, to);
}

int64_t time_of_change(const std::string& path) {
  struct stat is {};  // of what is not there, all 0: it will be read, and an error tells why not
  (void)::stat(path.c_str(), &is);
  return int64_t{is.st_ctim.tv_sec} * 1'000'000'000 + is.st_ctim.tv_nsec;
}

std::string NameList::operator[](int64_t i) const {
  const size_t begin = i > 0 ? ends_[size_t(i - 1)] : 0;
  return all_.substr(begin, ends_[size_t(i)] - begin);
}

std::string ImageFiles::read(int64_t i) const { return read_file(path(i)); }

ShardImages::ShardImages(std::vector<std::string> shards) : shards_(std::move(shards)) {
  for (const std::string& path : shards_) changed_.push_back(time_of_change(path));
}

void ShardImages::add(int64_t shard, std::string_view name, int64_t offset, int64_t bytes) {
  names_.add(name);
  places_.push_back({shard, offset, bytes});
}

std::string ShardImages::name(int64_t i) const {
  return std::filesystem::path(shards_[size_t(shard(i))]).filename().string() + ":" + names_[i];
}

std::string ShardImages::read(int64_t i) const {
  const auto& [shard, offset, bytes] = places_[size_t(i)];
  return InputFile(shards_[size_t(shard)]).read(uint64_t(offset), uint64_t(bytes));
}

}  // namespace ringtape
