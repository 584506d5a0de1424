#include "train/data/files/image_contents.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "train/io/hash.h"

namespace ringtape {

static constexpr int64_t kUnknown = -1, kRead = int64_t{1} << 32;

// Four numbers take in a word each at a time; each step can be undone, so that a word that differs makes its number
// differ. A CRC takes in these and the bytes that are left.
uint32_t checksum_of(const void* bytes, size_t size) {
  std::array<uint64_t, 4> sums{1, 2, 3, 4}, words;
  const auto* at = static_cast<const unsigned char*>(bytes);
  size_t left = size;
  for (; left >= sizeof words; at += sizeof words, left -= sizeof words) {
    std::memcpy(words.data(), at, sizeof words);
    for (size_t i = 0; i < 4; ++i) sums[i] = std::rotl((sums[i] ^ words[i]) * 0x9e3779b97f4a7c15u, 31);
  }
  return Crc32().add(sums.data(), sizeof sums).add(at, left).value();
}

ImageContents::ImageContents(int64_t images)
    : size_(images), states_(std::make_unique<std::atomic<int64_t>[]>(size_t(images))) {
  for (int64_t i = 0; i < images; ++i) states_[size_t(i)] = kUnknown;
}

std::optional<uint32_t> ImageContents::of(int64_t i) const {
  const int64_t state = states_[size_t(i)];
  return state == kUnknown ? std::nullopt : std::optional(uint32_t(state));
}

bool ImageContents::was_read(int64_t i) const { return states_[size_t(i)] >= kRead; }
bool ImageContents::expect(int64_t i, uint32_t checksum) { return note(i, checksum); }
bool ImageContents::read(int64_t i, uint32_t checksum) { return note(i, kRead + checksum); }

bool ImageContents::note(int64_t i, int64_t state) {
  std::atomic<int64_t>& now = states_[size_t(i)];
  int64_t before = kUnknown;
  if (now.compare_exchange_strong(before, state)) ++known_;
  else if (uint32_t(before) != uint32_t(state)) return false;
  else if (state >= kRead) now = state;
  return true;
}

std::string CheckedImages::read(int64_t i) const {
  std::string content = from_->read(i);
  if (contents_->was_read(i) && from_->changed_now(i) == from_->changed(i)) return content;
  RT_CHECK_AS(FormatError, contents_->read(i, checksum_of(content.data(), content.size())), path(i),
              ": has another content than when this run read it before; bring it back, or choose another --run");
  return content;
}

}  // namespace ringtape
