#include "train/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/check.h"

namespace ringtape {

// Makes the names in a folder last.
static void sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // it may be written but not read; what was renamed in it is
  ::fsync(folder);
  ::close(folder);
}

static std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  RT_CHECK_AS(IoError, fd_ >= 0, path_, ": cannot write: ", std::strerror(errno));
  const mode_t mask = ::umask(0);  // mkostemp makes private files; these are meant to be as any other
  ::umask(mask);
  ::fchmod(fd_, 0666 & ~mask);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(fd_, from, bytes);
    if (done < 0 && errno == EINTR) continue;
    RT_CHECK_AS(IoError, done > 0, path_, ": cannot write: ", std::strerror(errno));
    from += done;
    bytes -= size_t(done);
  }
}

void AtomicFile::commit() {
  RT_CHECK_AS(IoError, ::fsync(fd_) == 0, path_, ": cannot write: ", std::strerror(errno));
  RT_CHECK_AS(IoError, ::rename(temporary_.c_str(), path_.c_str()) == 0, path_,
              ": cannot write: ", std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
  sync_folder(folder_of(path_));
}

AtomicFolder::AtomicFolder(std::string path) : path_(std::move(path)), temporary_(path_ + kTemporaryFolder) {
  std::error_code error;
  std::filesystem::remove_all(temporary_, error);  // left by a process that was killed
  std::filesystem::create_directories(temporary_, error);
  RT_CHECK_AS(IoError, !error, path_, ": cannot write: ", error.message());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  sync_folder(temporary_);
  RT_CHECK_AS(IoError, ::rename(temporary_.c_str(), path_.c_str()) == 0, path_, ": cannot write: ", std::strerror(errno));
  committed_ = true;
  sync_folder(folder_of(path_));
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

std::string read_file(const std::string& path) {
  std::error_code ignored;
  RT_CHECK_AS(IoError, !std::filesystem::is_directory(path, ignored), path, ": is a folder, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  RT_CHECK_AS(IoError, file, path, ": cannot open: ", std::strerror(errno));
  std::ostringstream out;
  if (file.peek() != std::ifstream::traits_type::eof()) out << file.rdbuf();
  RT_CHECK_AS(IoError, !file.bad() && out, path, ": cannot read: ", std::strerror(errno));
  return std::move(out).str();
}

}  // namespace ringtape
