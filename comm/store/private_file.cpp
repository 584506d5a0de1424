#include "comm/store/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "comm/base/fd.h"
#include "core/check.h"

namespace ringtape::comm {

namespace {

bool is_private_folder(const std::string& path) {
  struct stat s {};
  return ::lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == ::geteuid() && (s.st_mode & 077) == 0;
}

bool write_whole(int file, const std::string& text) {
  return ::write(file, text.data(), text.size()) == ssize_t(text.size());
}

// The file gets a name only when it is complete, so a killed process leaves nothing behind. Not every file system
// supports this.
bool write_unnamed(const std::string& path, const std::string& text) {
  const Fd file(::open(path.substr(0, path.rfind('/')).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600));
  if (!file || !write_whole(file.get(), text)) return false;
  const std::string unnamed = concat("/proc/self/fd/", file.get());
  for (;;) {
    ::unlink(path.c_str());
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
    if (errno != EEXIST) return false;
  }
}

bool write_aside(const std::string& path, const std::string& text) {
  const std::string aside = concat(path, ".", ::getpid());
  ::unlink(aside.c_str());
  const Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return file && write_whole(file.get(), text) && ::rename(aside.c_str(), path.c_str()) == 0;
}

}  // namespace

std::string private_path(const std::string& folder, const std::string& name) {
  const char* const given = std::getenv("XDG_RUNTIME_DIR");
  std::string where = !folder.empty() ? folder : given && *given ? given : concat("/run/user/", ::geteuid());
  if (folder.empty() && (!is_private_folder(where) || ::access(where.c_str(), W_OK) != 0))
    where = concat("/tmp/ringtape-", ::geteuid());
  RT_CHECK_AS(CommError, ::mkdir(where.c_str(), 0700) == 0 || errno == EEXIST, "cannot make the folder ", where, ": ",
              std::strerror(errno));
  RT_CHECK_AS(CommError, is_private_folder(where), where,
              " is not a private folder of this user (mode 0700); remove it, or set RINGTAPE_TOKEN and MASTER_PORT");
  return concat(where, "/ringtape-job-", std::hash<std::string>()(name));
}

PrivateFile::PrivateFile(std::string path, const std::string& text) : path_(std::move(path)), text_(text) {
  RT_CHECK_AS(CommError, write_unnamed(path_, text) || write_aside(path_, text), "cannot write ", path_, ": ",
              std::strerror(errno));
}

PrivateFile::~PrivateFile() {
  if (!path_.empty()) remove(path_, text_);
}

void PrivateFile::remove(const std::string& path, const std::string& text) noexcept {
  try {
    if (read(path) == text) ::unlink(path.c_str());
  } catch (const CommError&) {  // it now belongs to somebody else
  }
}

std::string PrivateFile::read(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return "";
  struct stat s {};
  RT_CHECK_AS(CommError, ::fstat(file.get(), &s) == 0 && s.st_uid == ::geteuid() && (s.st_mode & 077) == 0, path,
              " could have been written by another user; remove it");
  char text[256];
  const ssize_t size = ::read(file.get(), text, sizeof text);
  return {text, size > 0 ? size_t(size) : 0};
}

}  // namespace ringtape::comm
