#include "train/data/files/image_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "train/data/files/image_contents.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/look.h"
#include "train/io/mapped_file.h"

namespace ringtape {
namespace {

// The number stands also for what decoding and scaling give: raise it when any of their bytes change.
constexpr const char* kFormat = "ringtape images 4\n";
constexpr size_t kPage = 4096;

// What a file begins with: all that the images depend on. Its size is a multiple of a page.
std::string header_of(const EncodedImages& images, ImageSize size) {
  std::string lines;
  for (int64_t i = 0; i < images.size(); ++i)
    lines += concat(images.bytes(i), '\t', images.changed(i), '\t', images.path(i), '\n');
  std::string out = concat(kFormat, size.height, ' ', size.width, ' ', images.size(), ' ', lines.size(),
                           images.reading().upright ? " upright" : "",
                           images.reading().resize > 0 ? concat(" from ", images.reading().resize) : "",
                           images.reading().interpolation == Interpolation::bicubic ? " bicubic" : "", '\n', lines);
  out.resize((out.size() + kPage - 1) / kPage * kPage, '\n');
  return out;
}

[[noreturn]] void fail_at(const std::string& path, const char* what, int error) {
  detail::fail<IoError>({path, ": ", what, ": ", std::generic_category().message(error)});
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_at(path, "cannot open", errno);
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// While this exists, no other process has one for the same file, except on file systems without locks.
class Lock {
 public:
  explicit Lock(const std::string& path) : path_(path + ".lock"), file_(path_, O_RDWR | O_CREAT) {
    if (take(LOCK_EX | LOCK_NB)) return;
    log_info(path, ": waiting for another process that writes it");
    take(LOCK_EX);
  }
  ~Lock() { ::flock(file_.fd(), LOCK_UN); }  // now, though a forked process may have the file open
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return held_; }

 private:
  // Returns false if another process has it.
  bool take(int how) {
    int error = 0;
    do error = ::flock(file_.fd(), how) == 0 ? 0 : errno;
    while (error == EINTR);
    const bool no_locks = error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP;
    if (error != 0 && error != EWOULDBLOCK && !no_locks) fail_at(path_, "cannot lock", error);
    held_ = error == 0;
    return error != EWOULDBLOCK;
  }

  const std::string path_;
  const OpenFile file_;
  bool held_ = false;
};

// Removes what killed processes left of a file; none may be writing it.
void remove_leftovers(const std::string& folder, const std::string& name) {
  for (const std::string& other : names_in(folder))
    if (other.starts_with(name) && is_temporary_name(other)) ::unlink((std::filesystem::path(folder) / other).c_str());
}

// The layout of a file: the header, the images, a checksum of each, and one of these checksums.
struct Layout {
  size_t header, images, each;  // the header's bytes, number of images, bytes of each
  size_t checksums() const { return header + images * each; }
  size_t bytes() const { return checksums() + (images + 1) * sizeof(uint32_t); }
};

void write_images(const std::string& path, const std::string& header, const Layout& layout,
                  const std::function<void(uint8_t*)>& decode_all) {
  const std::string temporary = temporary_name(path);
  try {
    const OpenFile file(temporary, O_RDWR | O_CREAT | O_EXCL);
    // Now, since a write to mapped memory cannot report a full disk.
    if (const int error = ::posix_fallocate(file.fd(), 0, off_t(layout.bytes())))
      fail_at(temporary, "cannot write", error);
    void* const at = ::mmap(nullptr, layout.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
    if (at == MAP_FAILED) fail_at(temporary, "cannot map", errno);
    const std::shared_ptr<void> memory(at, [&](void* p) { ::munmap(p, layout.bytes()); });
    auto* const to = static_cast<uint8_t*>(at);
    std::memcpy(to, header.data(), header.size());
    decode_all(to + layout.header);
    std::vector<uint32_t> sums(layout.images + 1);
    parallel_for(int64_t(layout.images), 64, [&](int64_t begin, int64_t end) {
      for (auto i = size_t(begin); i < size_t(end); ++i)
        sums[i] = checksum_of(to + layout.header + i * layout.each, layout.each);
    });
    sums.back() = checksum_of(sums.data(), layout.images * sizeof sums[0]);
    std::memcpy(to + layout.checksums(), sums.data(), sums.size() * sizeof sums[0]);
    if (::msync(to, layout.bytes(), MS_SYNC) != 0 || ::fsync(file.fd()) != 0) fail_at(temporary, "cannot write", errno);
    std::filesystem::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

// The checksums of a file's images; none if it is not the file that was asked for, or its header or they are damaged.
std::vector<uint32_t> read_checksums(const MappedFile& file, const std::string& header, const Layout& layout) {
  if (std::memcmp(file.data(), header.data(), header.size()) != 0) return {};
  std::vector<uint32_t> out(layout.images + 1);
  std::memcpy(out.data(), file.data() + layout.checksums(), out.size() * sizeof out[0]);
  const uint32_t sum = out.back();
  out.pop_back();
  return sum == checksum_of(out.data(), out.size() * sizeof out[0]) ? out : std::vector<uint32_t>();
}

}  // namespace

ImageCache::ImageCache(std::shared_ptr<const EncodedImages> images, ImageSize size, const std::string& folder,
                       const std::function<void(uint8_t* to)>& decode_all)
    : images_(std::move(images)), size_(size), bytes_each_(size.height * size.width * 3) {
  RT_CHECK_AS(UsageError, !folder.empty(), "--image-store disk: needs --image-cache DIR, since HOME is not set");
  const std::string header = header_of(*images_, size);
  const auto count = size_t(images_->size());
  const Layout layout{header.size(), count, size_t(bytes_each_)};
  const std::string name = concat("images-", Crc32().add(header).str(), ".bin");
  const std::string path = (std::filesystem::path(folder) / name).string();
  const auto open = [&] {
    if (!is_there(path)) return false;
    const OpenFile file(path, O_RDONLY | O_NONBLOCK);  // a pipe of that name is not waited for
    struct stat is {};
    RT_CHECK_AS(IoError, ::fstat(file.fd(), &is) == 0 && S_ISREG(is.st_mode), path,
                ": is not a file; remove it, or choose another --image-cache");
    if (uint64_t(is.st_size) != layout.bytes()) return false;
    file_ = std::make_shared<MappedFile>(path, file.fd(), layout.bytes());
    checksums_ = read_checksums(*file_, header, layout);
    return checksums_.size() == count;
  };
  if (!open()) {
    make_folder(folder);
    const Lock lock(path);
    if (lock.held()) remove_leftovers(folder, name);
    if (!open()) {  // another process may have written it meanwhile
      write_images(path, header, layout, decode_all);
      RT_CHECK_AS(IoError, open(), path, ": has changed while it was written");
    }
  }
  checked_ = std::make_unique<std::atomic<bool>[]>(count);
  const std::shared_ptr<void> at(file_, const_cast<uint8_t*>(file_->data()) + layout.header);
  const Shape shape{images_->size(), size.height, size.width, 3};
  pixels_ = Tensor(std::make_shared<Storage>(at, size_t(shape.size()), Device{}), shape, DType::u8);
}

void ImageCache::check() const { file_->check(); }

void ImageCache::check(int64_t i) const {
  std::atomic<bool>& checked = checked_[size_t(i)];
  if (checked) return;
  if (checksum_of(at(i), size_t(bytes_each_)) != checksum(i)) mend(i);
  checked = true;
}

void ImageCache::mend(int64_t i) const {
  const std::lock_guard lock(mending_);
  file_->check();
  if (checked_[size_t(i)]) return;
  if (!std::exchange(mended_, true)) {
    log_warn(file_->path(), ": damaged, such as the image ", images_->name(i),
             "; damaged images are decoded again, and the next run makes the file anew");
    ::unlink(file_->path().c_str());
  }
  std::vector<uint8_t> pixels(size_t(bytes_each_), 0);
  decode_as(*images_, i, size_, pixels.data());
  RT_CHECK_AS(FormatError, checksum_of(pixels.data(), pixels.size()) == checksum(i), images_->path(i),
              ": is not the image any more of which ", file_->path(), " was made; start again");
  file_->replace(size_t(at(i) - file_->data()), pixels.data(), pixels.size());
  checked_[size_t(i)] = true;
}

}  // namespace ringtape
