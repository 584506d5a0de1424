#include "train/io/zip.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "core/printable.h"
#include "train/io/hash.h"

namespace ringtape {
namespace {

static_assert(std::endian::native == std::endian::little);

// Each record of an archive begins with a mark; the numbers in it are little-endian.
constexpr uint32_t kLocalMark = 0x04034b50, kEntryMark = 0x02014b50, kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50,
                   kLocator64Mark = 0x07064b50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint64_t kIn64 = 0xffffffff;  // the number is in the field of 64-bit numbers
constexpr uint16_t kNumbers64 = 1, kPadding = 0x4246, kAlignment = 64;

template <class T> T number_at(std::string_view bytes, size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

template <class T> void put(std::string& out, T x) { out.append(reinterpret_cast<const char*>(&x), sizeof x); }

// Replaces those of the numbers that are kIn64 by the ones in the extra fields of an entry. False if they are absent.
bool take_64(std::string_view extra, std::initializer_list<uint64_t*> numbers) {
  std::string_view field;
  while (extra.size() >= 4 && field.empty()) {
    const auto id = number_at<uint16_t>(extra, 0), size = number_at<uint16_t>(extra, 2);
    if (size > extra.size() - 4) return false;
    if (id == kNumbers64) field = extra.substr(4, size);
    extra.remove_prefix(4 + size_t(size));
  }
  for (uint64_t* const x : numbers) {
    if (*x != kIn64) continue;
    if (field.size() < 8) return false;
    *x = number_at<uint64_t>(field, 0);
    field.remove_prefix(8);
  }
  return true;
}

}  // namespace

ZipReader::ZipReader(std::string path) : path_(std::move(path)), file_(path_) {
  uint64_t begin = 0, bytes = 0, count = 0;
  find_directory(begin, bytes, count);
  RT_CHECK_AS(FormatError, bytes <= kLargestDirectory && begin <= file_.size() && bytes <= file_.size() - begin, path_,
              ": damaged: its list of files is said to be ", bytes, " bytes from ", begin, " on");
  const std::string list = file_.read(begin, bytes);
  std::string_view rest = list;
  for (; count > 0; --count) {
    RT_CHECK_AS(FormatError, rest.size() >= kEntryBytes && number_at<uint32_t>(rest, 0) == kEntryMark, path_,
                ": damaged: its list of files is cut off");
    const size_t name = number_at<uint16_t>(rest, 28), extra = number_at<uint16_t>(rest, 30),
                 comment = number_at<uint16_t>(rest, 32);
    RT_CHECK_AS(FormatError, name + extra + comment <= rest.size() - kEntryBytes, path_,
                ": damaged: its list of files is cut off");
    uint64_t packed = number_at<uint32_t>(rest, 20);
    ZipEntry entry{.name = std::string(rest.substr(kEntryBytes, name)),
                   .size = number_at<uint32_t>(rest, 24),
                   .crc = number_at<uint32_t>(rest, 16),
                   .header = number_at<uint32_t>(rest, 42)};
    const bool whole = take_64(rest.substr(kEntryBytes + name, extra), {&entry.size, &packed, &entry.header});
    entry.stored = number_at<uint16_t>(rest, 10) == 0 && (number_at<uint16_t>(rest, 8) & 1) == 0;
    RT_CHECK_AS(FormatError,
                whole && packed <= file_.size() && entry.header <= file_.size() - packed &&
                    (!entry.stored || packed == entry.size),
                path_, ": damaged: '", printable(entry.name), "' is said to be outside of it");
    entries_.push_back(std::move(entry));
    rest.remove_prefix(kEntryBytes + name + extra + comment);
  }
  std::sort(entries_.begin(), entries_.end(), [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(entries_.begin(), entries_.end(),
                                        [](const ZipEntry& a, const ZipEntry& b) { return a.name == b.name; });
  RT_CHECK_AS(FormatError, twice == entries_.end(), path_, ": has two files '",
              twice == entries_.end() ? "" : printable(twice->name), "'");
}

// The end record is the last thing in the file, but for a comment and what else follows, up to 65,535 bytes.
void ZipReader::find_directory(uint64_t& begin, uint64_t& bytes, uint64_t& count) {
  const uint64_t last = std::min<uint64_t>(file_.size(), kEndBytes + 0xffff);
  const std::string tail = file_.read(file_.size() - last, last);
  size_t at = tail.size() < kEndBytes ? std::string::npos : tail.size() - kEndBytes;
  const auto ends = [&](size_t i) {
    return number_at<uint32_t>(tail, i) == kEndMark && number_at<uint16_t>(tail, i + 20) <= tail.size() - i - kEndBytes;
  };
  while (at != std::string::npos && !ends(at)) at = at > 0 ? at - 1 : std::string::npos;
  RT_CHECK_AS(FormatError, at != std::string::npos, path_,
              ": truncated: it begins as a ZIP archive, such as PyTorch's files, but the list of files at its end is "
              "absent");
  count = number_at<uint16_t>(tail, at + 10), bytes = number_at<uint32_t>(tail, at + 12),
  begin = number_at<uint32_t>(tail, at + 16);
  if (count != 0xffff && bytes != kIn64 && begin != kIn64) return;
  if (at < kLocatorBytes || number_at<uint32_t>(tail, at - kLocatorBytes) != kLocator64Mark) return;
  const auto where = number_at<uint64_t>(tail, at - kLocatorBytes + 8);
  RT_CHECK_AS(FormatError, where <= file_.size() && kEnd64Bytes <= file_.size() - where, path_,
              ": damaged: the end of its list of files is said to be outside of it");
  const std::string end = file_.read(where, kEnd64Bytes);
  RT_CHECK_AS(FormatError, number_at<uint32_t>(end, 0) == kEnd64Mark, path_, ": damaged: its list of files has no end");
  count = number_at<uint64_t>(end, 32), bytes = number_at<uint64_t>(end, 40), begin = number_at<uint64_t>(end, 48);
}

const ZipEntry* ZipReader::find(const std::string& name) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const ZipEntry& a, const std::string& b) { return a.name < b; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

void ZipReader::read(const ZipEntry& entry, uint64_t offset, void* to, uint64_t bytes) {
  RT_CHECK_AS(FormatError, entry.stored, path_, ": '", printable(entry.name),
              "' in it is compressed or encrypted, which PyTorch's files are not");
  const std::string local = file_.read(entry.header, std::min<uint64_t>(kLocalBytes, file_.size() - entry.header));
  RT_CHECK_AS(FormatError, local.size() == kLocalBytes && number_at<uint32_t>(local, 0) == kLocalMark, path_,
              ": damaged: there is no '", printable(entry.name), "' where its list of files says");
  const uint64_t begin = entry.header + kLocalBytes + number_at<uint16_t>(local, 26) + number_at<uint16_t>(local, 28);
  RT_CHECK_AS(FormatError,
              offset <= entry.size && bytes <= entry.size - offset && begin <= file_.size() &&
                  entry.size <= file_.size() - begin,
              path_, ": damaged: '", printable(entry.name), "' in it is too short");
  file_.read(begin + offset, to, bytes);
}

std::string ZipReader::read(const ZipEntry& entry, uint64_t limit) {
  RT_CHECK_AS(FormatError, entry.size <= limit, path_, ": '", printable(entry.name), "' in it has ", entry.size,
              " bytes; at most ", limit, " are expected");
  std::string out(entry.size, '\0');
  read(entry, 0, out.data(), entry.size);
  check(entry);
  return out;
}

void ZipReader::check(const ZipEntry& entry) {
  if (entry.crc == 0) return;
  Crc32 crc;
  std::string block(std::min<uint64_t>(entry.size, 1 << 20), '\0');
  for (uint64_t at = 0; at < entry.size; at += block.size()) {
    block.resize(std::min<uint64_t>(block.size(), entry.size - at));
    read(entry, at, block.data(), block.size());
    crc.add(block);
  }
  RT_CHECK_AS(FormatError, crc.value() == entry.crc, path_, ": damaged: '", printable(entry.name),
              "' in it does not match its checksum");
}

void ZipWriter::write(std::string_view bytes) {
  file_.write(bytes.data(), bytes.size());
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, const std::function<void(const Sink&)>& produce) {
  Crc32 crc;
  uint64_t size = 0;
  produce([&](const void* data, size_t bytes) { crc.add(data, bytes), size += bytes; });
  const bool large = size >= kIn64 || at_ >= kIn64;
  const auto short_size = uint32_t(large ? kIn64 : size);
  std::string common;  // to both headers of a file
  put<uint16_t>(common, large ? 45 : 20), put<uint16_t>(common, 0), put<uint16_t>(common, 0);  // version, flags, stored
  put<uint32_t>(common, 0x00210000);  // 1 January 1980: the same tensors give the same bytes
  put<uint32_t>(common, crc.value()), put(common, short_size), put(common, short_size);
  put<uint16_t>(common, uint16_t(name.size()));

  std::string extra;
  if (large) put(extra, kNumbers64), put<uint16_t>(extra, 16), put(extra, size), put(extra, size);
  const uint64_t begin = at_ + kLocalBytes + name.size() + extra.size() + 4;
  const auto padding = uint16_t((kAlignment - begin % kAlignment) % kAlignment);
  put(extra, kPadding), put(extra, padding), extra.append(padding, '\0');
  std::string local;
  put(local, kLocalMark), local += common, put(local, uint16_t(extra.size())), local += name + extra;

  std::string numbers;
  if (large)
    put(numbers, kNumbers64), put<uint16_t>(numbers, 24), put(numbers, size), put(numbers, size), put(numbers, at_);
  put(directory_, kEntryMark), put<uint16_t>(directory_, 45), directory_ += common;
  put(directory_, uint16_t(numbers.size())), directory_.append(10, '\0');  // no comment, one disk, no attributes
  put(directory_, uint32_t(large ? kIn64 : at_)), directory_ += name + numbers;
  ++count_;
  write(local);
  produce([&](const void* data, size_t bytes) { write({static_cast<const char*>(data), bytes}); });
}

void ZipWriter::add(const std::string& name, std::string_view content) {
  add(name, [&](const Sink& sink) { sink(content.data(), content.size()); });
}

void ZipWriter::commit() {
  const uint64_t begin = at_, bytes = directory_.size();
  write(directory_);
  const bool large = begin >= kIn64 || bytes >= kIn64 || count_ >= 0xffff;
  std::string end;
  if (large) {
    put(end, kEnd64Mark), put<uint64_t>(end, kEnd64Bytes - 12), put<uint16_t>(end, 45), put<uint16_t>(end, 45);
    put<uint64_t>(end, 0), put(end, count_), put(end, count_), put(end, bytes), put(end, begin);
    put(end, kLocator64Mark), put<uint32_t>(end, 0), put(end, begin + bytes), put<uint32_t>(end, 1);
  }
  const auto short_count = uint16_t(std::min<uint64_t>(count_, 0xffff));
  put(end, kEndMark), put<uint32_t>(end, 0), put(end, short_count), put(end, short_count);
  put(end, uint32_t(std::min(bytes, kIn64))), put(end, uint32_t(large ? kIn64 : begin)), put<uint16_t>(end, 0);
  write(end);
  file_.commit();
}

}  // namespace ringtape
