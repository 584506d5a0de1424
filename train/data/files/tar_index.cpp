#include "train/data/files/tar_index.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "core/check.h"
#include "core/printable.h"

namespace ringtape {
namespace {

constexpr int64_t kBlock = 512;           // headers are one, and members begin at one
constexpr int64_t kMaxRecords = 1 << 16;  // bytes of a long name or of pax records

using Block = std::array<char, kBlock>;

// Reads an archive at any place.
class TarFile {
 public:
  explicit TarFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail();
    size_ = ::lseek(fd_, 0, SEEK_END);
    if (size_ < 0) {
      const int error = errno;
      ::close(fd_);
      errno = error, fail();
    }
  }
  ~TarFile() { ::close(fd_); }
  TarFile(const TarFile&) = delete;
  TarFile& operator=(const TarFile&) = delete;

  int64_t size() const { return size_; }
  // False if the archive ends before.
  bool read(int64_t offset, char* to, int64_t bytes) const {
    if (bytes > size_ || offset > size_ - bytes) return false;
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, to, size_t(bytes), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got == 0) return false;
      to += got, offset += got, bytes -= got;
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const { detail::fail<IoError>({path_, ": cannot read: ", std::strerror(errno)}); }
  const std::string& path_;
  int fd_;
  int64_t size_ = 0;
};

std::string_view field(const Block& block, size_t at, size_t bytes) {
  const std::string_view all(block.data() + at, bytes);
  return all.substr(0, all.find('\0'));
}

// A number in octal digits, or as GNU tar writes large ones: in base 256, after a byte of 0x80. None if it is neither.
std::optional<int64_t> number(const Block& block, size_t at, size_t bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(block.data()) + at;
  uint64_t value = 0;
  if (p[0] & 0x80) {
    if (p[0] != 0x80) return {};
    for (size_t i = 1; i < bytes; ++i) {
      if (value >> 55) return {};
      value = value << 8 | p[i];
    }
    return int64_t(value);
  }
  std::string_view digits = field(block, at, bytes);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char c : digits) {
    if (c < '0' || c > '7') return {};
    value = value << 3 | uint64_t(c - '0');
  }
  return int64_t(value);  // at most 12 digits
}

bool checksum_holds(const Block& block) {
  constexpr size_t kAt = 148, kBytes = 8;
  int64_t plain = 0, as_signed = 0;  // old programs add signed bytes
  for (size_t i = 0; i < block.size(); ++i) {
    const char c = i >= kAt && i < kAt + kBytes ? ' ' : block[i];
    plain += static_cast<unsigned char>(c), as_signed += static_cast<signed char>(c);
  }
  const std::optional<int64_t> told = number(block, kAt, kBytes);
  return told && (*told == plain || *told == as_signed);
}

const char* compression(std::string_view begin) {
  using namespace std::string_view_literals;
  if (begin.starts_with("\x1f\x8b"sv)) return "gzip";
  if (begin.starts_with("BZh"sv)) return "bzip2";
  if (begin.starts_with("\xfd"
                        "7zXZ"sv))
    return "xz";
  if (begin.starts_with("\x28\xb5\x2f\xfd"sv)) return "zstd";
  return nullptr;
}

class TarReader {
 public:
  explicit TarReader(const std::string& path) : path_(path), file_(path) {}

  TarIndex index() {
    Block block{};
    file_.read(0, block.data(), std::min(file_.size(), kBlock));
    if (const char* kind = compression({block.data(), block.size()}))
      detail::fail<FormatError>(
          {path_, ": an archive compressed by ", kind, "; unpack it to .tar, which is read at any place"});
    for (;;) {
      if (!file_.read(at_, block.data(), kBlock)) damaged("it is cut off: its end marker is missing");
      if (block == Block{}) break;
      if (!checksum_holds(block)) damaged("no header, or a damaged one");
      take(block);
    }
    check_end();
    check_names();
    return std::move(out_);
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const {
    detail::fail<FormatError>({path_, ": damaged tar archive at byte ", at_, " (", why, ")"});
  }
  static int64_t padded(int64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

  // A header and what belongs to it.
  void take(const Block& block) {
    const char type = block[156];
    const std::optional<int64_t> told = number(block, 124, 12);
    if (!told) damaged("a size that is no number");
    const bool data = type < '1' || type > '6';  // links, devices, folders and pipes have none, whatever they say
    const bool file = type == '0' || type == '\0' || type == '7';
    int64_t size = data ? *told : 0;
    if (file && size_) size = *size_;
    const int64_t begin = at_ + kBlock;
    if (size > file_.size() - begin) damaged(concat("it is cut off: a member of ", size, " bytes goes past the end"));
    if (type == 'L' || type == 'K' || type == 'x') {
      const std::string records = content(begin, size);
      if (type == 'L') name_ = records.substr(0, records.find('\0'));
      if (type == 'x') take_records(records);
    } else if (type != 'g') {
      finish(block, type, file, begin, size);
    }
    at_ = begin + padded(size);
  }

  std::string content(int64_t begin, int64_t size) const {
    if (size > kMaxRecords) damaged(concat("a name or records of ", size, " bytes"));
    std::string out(size_t(size), '\0');
    if (!file_.read(begin, out.data(), size)) damaged("it is cut off");
    return out;
  }

  // Pax: "LENGTH KEY=VALUE\n", where the length is that of the whole record.
  void take_records(std::string_view rest) {
    while (!rest.empty() && rest[0] != '\0') {
      size_t length = 0, digits = 0;
      while (digits < rest.size() && digits < 6 && rest[digits] >= '0' && rest[digits] <= '9')
        length = 10 * length + size_t(rest[digits++] - '0');
      const bool whole = digits > 0 && digits < rest.size() && rest[digits] == ' ' && length > digits + 1 &&
                         length <= rest.size() && rest[length - 1] == '\n';
      const std::string_view record = whole ? rest.substr(digits + 1, length - digits - 2) : "";
      const size_t equals = record.find('=');
      if (!whole || equals == record.npos) damaged("a damaged pax record");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") name_ = value;
      if (key == "size") size_ = whole_number(value);
      if (key.starts_with("GNU.sparse.")) sparse_ = true;
      rest.remove_prefix(length);
    }
  }
  int64_t whole_number(std::string_view text) const {
    int64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9' || text.size() > 18) damaged("a pax size that is no number");
      value = 10 * value + (c - '0');
    }
    return value;
  }

  // The end of a member: what stood before it was about it.
  void finish(const Block& block, char type, bool file, int64_t begin, int64_t size) {
    std::string name = name_ ? std::move(*name_) : header_name(block);
    const bool sparse = sparse_ || type == 'S';
    name_.reset(), size_.reset(), sparse_ = false;
    if (type == '1' || type == '2') ++out_.links;
    else if (type == '5' || (file && name.ends_with('/'))) return;  // folders have no content
    else if (sparse) damaged(printable(name) + " is a sparse file; make the archive without --sparse");
    else if (!file) ++out_.others;
    else {
      check_name(name);
      while (name.starts_with("./")) name.erase(0, name.find_first_not_of('/', 1));
      if (name.empty() || name == ".") damaged("a member without a name");
      out_.members.push_back({std::move(name), begin, size});
    }
  }
  static std::string header_name(const Block& block) {
    const std::string_view name = field(block, 0, 100);
    const std::string_view prefix =
        std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6) ? field(block, 345, 155) : "";
    return prefix.empty() ? std::string(name) : concat(prefix, "/", name);
  }
  void check_name(const std::string& name) const {
    if (name.empty() || name.find('\0') != name.npos) damaged("a member without a name");
    bool up = false;
    for (size_t from = 0; from <= name.size();) {
      const size_t to = std::min(name.find('/', from), name.size());
      up = up || name.compare(from, to - from, "..") == 0;
      from = to + 1;
    }
    if (name[0] == '/' || up)
      detail::fail<FormatError>(
          {path_, ": the name '", printable(name), "' leads out of the archive; make it anew with ", "relative names"});
  }

  // Behind the end marker only padding may follow, of at most as many bytes as are looked at.
  void check_end() const {
    std::vector<char> rest(size_t(std::min<int64_t>(file_.size() - at_, 1 << 20)));
    file_.read(at_, rest.data(), int64_t(rest.size()));
    if (std::any_of(rest.begin(), rest.end(), [](char c) { return c != '\0'; }))
      damaged("it goes on behind its end marker, as archives do that were joined; only the first would be read");
  }
  void check_names() const {
    std::unordered_set<std::string_view> names;
    names.reserve(out_.members.size());
    for (const TarMember& member : out_.members)
      RT_CHECK_AS(FormatError, names.insert(member.name).second, path_, ": two members have the name '",
                  printable(member.name), "'");
  }

  const std::string& path_;
  const TarFile file_;
  int64_t at_ = 0;  // of the next header
  // What the last headers said about the next member.
  std::optional<std::string> name_;
  std::optional<int64_t> size_;
  bool sparse_ = false;
  TarIndex out_;
};

}  // namespace

TarIndex index_tar(const std::string& path) { return TarReader(path).index(); }

}  // namespace ringtape
