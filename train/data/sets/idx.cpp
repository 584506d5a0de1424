#include "train/data/sets/idx.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "train/io/sizes.h"

namespace ringtape {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;  // idx's code for the element type

// A file, gzip-compressed or not; zlib passes plain files through.
class GzFile {
 public:
  explicit GzFile(const std::string& path) : path_(path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    RT_CHECK_AS(IoError, fd >= 0, path, ": cannot open: ", std::strerror(errno));
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      detail::fail<IoError>({path, ": not a regular file"});
    }
    bytes_ = uint64_t(info.st_size);
    file_ = gzdopen(fd, "rb");
    if (!file_) ::close(fd);
    RT_CHECK_AS(IoError, file_, path, ": cannot open: out of memory");
    gzbuffer(file_, 1 << 17);
  }
  ~GzFile() { gzclose_r(file_); }
  GzFile(const GzFile&) = delete;
  GzFile& operator=(const GzFile&) = delete;

  // Reads up to n bytes; returns the number read, less than n only at the end.
  uint64_t read(void* to, uint64_t n) {
    uint64_t done = 0;
    while (done < n) {
      constexpr uint64_t kLargest = 1u << 30;  // gzread counts in int
      const int got = gzread(file_, static_cast<char*>(to) + done, unsigned(std::min(n - done, kLargest)));
      if (got <= 0) break;
      done += uint64_t(got);
    }
    if (done < n) check();
    return done;
  }
  bool ended_early() {  // inside the compressed data or its checksum
    int code = Z_OK;
    gzerror(file_, &code);
    return code == Z_BUF_ERROR;
  }
  bool plain() { return gzdirect(file_); }
  uint64_t bytes() const { return bytes_; }  // on disk

 private:
  void check() {
    int code = Z_OK;
    const char* message = gzerror(file_, &code);
    RT_CHECK_AS(IoError, code != Z_ERRNO, path_, ": cannot read: ", std::strerror(errno));
    // The caller reports a stream that ends early, since it knows how much was expected.
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      const char* colon = std::strstr(message, ": ");
      detail::fail<FormatError>({path_, ": damaged gzip data (", colon ? colon + 2 : message, "); download it again"});
    }
  }

  std::string path_;
  gzFile file_ = nullptr;
  uint64_t bytes_ = 0;
};

uint32_t big_endian(const uint8_t* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3];
}

void check_magic(const std::string& path, GzFile& file, const uint8_t* magic, int rank) {
  const bool idx = magic[0] == 0 && magic[1] == 0;
  RT_CHECK_AS(FormatError, !idx || magic[2] == kUnsignedByte || magic[3] != rank, path,
              ": expected elements of unsigned bytes (idx type 8), got type ", int(magic[2]));
  const uint32_t wanted = uint32_t(kUnsignedByte) << 8 | uint32_t(rank), got = big_endian(magic);
  const char* hint = "; is this the right file?";
  if (file.plain() && path.ends_with(".gz")) hint = "; it is named .gz but is not gzip data: download it again";
  else if (idx && rank == 1 && magic[3] == 3) hint = "; this is an image file where labels should be";
  else if (idx && rank == 3 && magic[3] == 1) hint = "; this is a label file where images should be";
  RT_CHECK_AS(FormatError, got == wanted, path, ": expected magic number ", wanted, " (idx, unsigned bytes, rank ",
              rank, "), got ", got, hint);
}

}  // namespace

Tensor read_idx(const std::string& path, int rank) {
  GzFile file(path);
  uint8_t header[4 + 4 * kMaxRank];
  const uint64_t header_bytes = 4 + 4 * uint64_t(rank), got = file.read(header, header_bytes);
  RT_CHECK_AS(FormatError, got >= 4, path, ": truncated: expected an idx header of ", header_bytes, " bytes, got ",
              got);
  check_magic(path, file, header, rank);
  RT_CHECK_AS(FormatError, got == header_bytes, path, ": truncated: expected an idx header of ", header_bytes,
              " bytes, got ", got, "; download it again");

  Shape shape;
  std::vector<uint64_t> sizes;
  for (int i = 0; i < rank; ++i) {
    sizes.push_back(big_endian(header + 4 + 4 * i));
    shape.append(int64_t(sizes.back()));
  }
  const std::optional<uint64_t> declared = declared_elements(sizes);
  const uint64_t most = file.plain() ? file.bytes() - header_bytes : file.bytes() * kDeflateRatio;
  RT_CHECK_AS(FormatError, declared && *declared <= most, path, ": truncated: declares ", shape,
              " unsigned bytes, more than a file of ", file.bytes(), " bytes can hold; download it again");

  const uint64_t bytes = *declared;
  Tensor out(shape, DType::u8);
  const uint64_t elements = file.read(out.data<uint8_t>(), bytes);
  RT_CHECK_AS(FormatError, elements == bytes, path, ": truncated: expected ", bytes, " bytes for ", shape, ", got ",
              elements, "; download it again");
  uint8_t extra;
  RT_CHECK_AS(FormatError, file.read(&extra, 1) == 0, path, ": bytes after the ", bytes, " that ", shape,
              " takes; the header does not match the file");
  RT_CHECK_AS(FormatError, !file.ended_early(), path, ": truncated: the gzip checksum is missing; download it again");
  return out;
}

}  // namespace ringtape
