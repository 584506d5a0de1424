#include "train/data/image_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "core/check.h"
#include "core/log.h"
#include "core/storage.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

// The number stands also for what decoding and scaling give: raise it when any of their bytes change.
constexpr const char* kFormat = "ringtape images 3\n";
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

std::shared_ptr<void> mapped(const std::string& path, int fd, size_t bytes, int protection) {
  void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail_at(path, "cannot map", errno);
  return {at, [bytes](void* p) { ::munmap(p, bytes); }};
}

void write_images(const std::string& path, const std::string& header, size_t bytes,
                  const std::function<void(uint8_t*)>& fill) {
  const std::string temporary = temporary_name(path);
  try {
    const OpenFile file(temporary, O_RDWR | O_CREAT | O_EXCL);
    // Now, since a write to mapped memory cannot report a full disk.
    if (const int error = ::posix_fallocate(file.fd(), 0, off_t(bytes))) fail_at(temporary, "cannot write", error);
    const auto memory = mapped(temporary, file.fd(), bytes, PROT_READ | PROT_WRITE);
    auto* const to = static_cast<uint8_t*>(memory.get());
    std::memcpy(to, header.data(), header.size());
    fill(to + header.size());
    if (::msync(to, bytes, MS_SYNC) != 0 || ::fsync(file.fd()) != 0) fail_at(temporary, "cannot write", errno);
    std::filesystem::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

Tensor cached_images(const EncodedImages& images, ImageSize size, const std::string& folder,
                     const std::function<void(uint8_t* to)>& fill) {
  RT_CHECK_AS(UsageError, !folder.empty(), "--image-store disk: needs --image-cache DIR, since HOME is not set");
  const std::string header = header_of(images, size);
  const Shape shape{images.size(), size.height, size.width, 3};
  const size_t bytes = header.size() + size_t(shape.size());
  const std::string name = concat("images-", Crc32().add(header).str(), ".bin");
  const std::string path = (std::filesystem::path(folder) / name).string();
  const auto open = [&]() -> std::shared_ptr<void> {
    if (!is_there(path)) return nullptr;
    const OpenFile file(path, O_RDONLY);
    if (std::filesystem::file_size(path) != bytes) return nullptr;
    auto memory = mapped(path, file.fd(), bytes, PROT_READ);
    return std::memcmp(memory.get(), header.data(), header.size()) == 0 ? memory : nullptr;
  };
  std::shared_ptr<void> memory = open();
  if (!memory) {
    make_folder(folder);
    const Lock lock(path);
    if (lock.held()) remove_leftovers(folder, name);
    memory = open();  // another process may have written it meanwhile
    if (!memory) write_images(path, header, bytes, fill), memory = open();
    RT_CHECK_AS(IoError, memory, path, ": has changed while it was written");
  }
  const std::shared_ptr<void> pixels(memory, static_cast<char*>(memory.get()) + header.size());
  return Tensor(std::make_shared<Storage>(pixels, size_t(shape.size()), Device{}), shape, DType::u8);
}

}  // namespace ringtape
