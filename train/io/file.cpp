#include "train/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "core/check.h"
#include "core/limits.h"
#include "train/io/look.h"

namespace ringtape {

namespace fs = std::filesystem;

static constexpr std::string_view kMark = ".ringtape-", kSuffix = ".tmp";
static constexpr size_t kRandom = 6;

std::string temporary_name(const std::string& path) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::string out = path + std::string(kMark);
  for (size_t i = 0; i < kRandom; ++i) out += letters[device() % letters.size()];
  return out + std::string(kSuffix);
}

bool is_temporary_name(std::string_view name) {
  const size_t length = kMark.size() + kRandom + kSuffix.size();
  if (name.size() <= length || !name.ends_with(kSuffix)) return false;
  const std::string_view mark = name.substr(name.size() - length);
  const auto random = mark.substr(kMark.size(), kRandom);
  return mark.starts_with(kMark) &&
         std::all_of(random.begin(), random.end(), [](unsigned char c) { return std::isalnum(c); });
}

// Calls make() with temporary names until one is new; returns its result, or -1 with errno for any other error.
template <class Make> static int with_temporary_name(const std::string& path, std::string& name, Make&& make) {
  constexpr int kTries = 100;
  int made = -1;
  for (int i = 0; i < kTries; ++i) {
    name = temporary_name(path);
    made = make(name.c_str());
    if (made >= 0 || errno != EEXIST) break;
  }
  return made;
}

void sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  RT_CHECK_AS(IoError, folder >= 0 || errno == EACCES, path, ": cannot open: ", reason(errno));
  if (folder < 0) return;
  const int error = ::fsync(folder) == 0 ? 0 : errno;
  ::close(folder);
  const bool unknown = error == EINVAL || error == EBADF;  // from file systems that cannot sync folders
  RT_CHECK_AS(IoError, error == 0 || unknown, path, ": cannot write: ", std::strerror(error));
}

static std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool remove_folder(const std::string& path) {
  const std::string temporary = temporary_name(path);
  std::error_code error;
  fs::rename(path, temporary, error);
  if (error) return false;
  sync_folder(folder_of(path));
  fs::remove_all(temporary, error);
  return true;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> parents;  // parents of the new folders, the innermost first
  for (std::string at = path; !fs::exists(at, error) && folder_of(at) != at; at = folder_of(at))
    parents.push_back(folder_of(at));
  fs::create_directories(path, error);
  RT_CHECK_AS(IoError, !error, path, ": cannot write: ", error.message());
  for (auto parent = parents.rbegin(); parent != parents.rend(); ++parent) sync_folder(*parent);
}

// Whether the name is free or a file's, so that a new file may replace it.
static bool is_replaceable(const std::string& path) {
  const fs::file_type type = type_at(path);
  RT_CHECK_AS(IoError, type != fs::file_type::directory, path, ": cannot write: ", std::strerror(EISDIR));
  return type == fs::file_type::not_found || type == fs::file_type::regular;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (is_replaceable(path_)) {
    if (name_type(path_) == fs::file_type::symlink) path_ = fs::canonical(path_).string();
    fd_ = with_temporary_name(
        path_, temporary_, [](const char* name) { return ::open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  } else {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  }
  RT_CHECK_AS(IoError, fd_ >= 0, path_, ": cannot write: ", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void check_can_write(const std::string& path) {
  if (is_replaceable(path)) AtomicFile file(path);
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
  const bool is_file = !temporary_.empty();
  const bool done = !is_file || (::fsync(fd_) == 0 && ::rename(temporary_.c_str(), path_.c_str()) == 0);
  RT_CHECK_AS(IoError, done, path_, ": cannot write: ", std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
  if (is_file) sync_folder(folder_of(path_));
}

AtomicFolder::AtomicFolder(std::string path) : path_(std::move(path)) {
  make_folder(folder_of(path_));
  const int made = with_temporary_name(path_, temporary_, [](const char* name) { return ::mkdir(name, 0777); });
  RT_CHECK_AS(IoError, made == 0, path_, ": cannot write: ", std::strerror(errno));
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  sync_folder(temporary_);
  RT_CHECK_AS(IoError, ::rename(temporary_.c_str(), path_.c_str()) == 0, path_,
              ": cannot write: ", std::strerror(errno));
  committed_ = true;
  sync_folder(folder_of(path_));
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

static std::ifstream opened(const std::string& path) {
  std::error_code ignored;
  RT_CHECK_AS(IoError, !fs::is_directory(path, ignored), path, ": is a folder, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  RT_CHECK_AS(IoError, file, path, ": cannot open: ", std::strerror(errno));
  return file;
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  std::error_code error;
  size_ = std::filesystem::file_size(path_, error);
  RT_CHECK_AS(IoError, !error, path_, ": cannot open: ", error.message());
  stream_ = opened(path_);
}

void InputFile::read(uint64_t offset, void* to, uint64_t bytes) {
  errno = 0;
  stream_.seekg(std::streamoff(offset));
  RT_CHECK_AS(IoError, stream_.read(static_cast<char*>(to), std::streamsize(bytes)), path_,
              ": cannot read: ", errno ? std::strerror(errno) : "it has become shorter");
}

std::string InputFile::read(uint64_t offset, uint64_t bytes) {
  std::string out(bytes, '\0');
  read(offset, out.data(), bytes);
  return out;
}

std::string read_file(const std::string& path) {
  std::ifstream file = opened(path);
  std::ostringstream out;
  if (file.peek() != std::ifstream::traits_type::eof()) out << file.rdbuf();
  RT_CHECK_AS(IoError, !file.bad() && out, path, ": cannot read: ", std::strerror(errno));
  return std::move(out).str();
}

std::string read_file(const std::string& path, int64_t limit) {
  std::ifstream file = opened(path);
  std::string out, block(1 << 16, '\0');
  do {
    file.read(block.data(), std::streamsize(block.size()));
    out.append(block, 0, size_t(file.gcount()));
    RT_CHECK_AS(FormatError, int64_t(out.size()) <= limit, path, ": longer than the maximum of ", limit, " bytes");
  } while (file);
  RT_CHECK_AS(IoError, file.eof() && !file.bad(), path, ": cannot read: ", std::strerror(errno));
  return out;
}

}  // namespace ringtape
