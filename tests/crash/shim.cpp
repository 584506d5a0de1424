// Preloaded into a training, for the calls that change files below CRASH_ROOT: writes them to CRASH_RECORD, or makes
// one fail.
//   CRASH_RECORD=FILE   a line a call that has succeeded, fields separated by tabs, paths relative to CRASH_ROOT:
//                         create PATH, write PATH OFFSET BYTES (the bytes are in FILE.data, one after the other),
//                         truncate PATH SIZE, fsync PATH, fdatasync PATH, syncdir PATH (fsync of a folder), close PATH,
//                         mkdir PATH, unlink PATH, rmdir PATH, rename OLD NEW, symlink TARGET PATH
//                       and one where a call was made to fail: fault CALL PATH
//   CRASH_FAULT="CALL ERRNO N"   the Nth of these calls fails; "N+": and all that follow. `write` counts what stdio
//                                flushes, too; `open` is what opens for writing.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

std::recursive_mutex mutex;  // a call may call another of these
std::string text_of(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

template <class F> F* real(F*, const char* name) { return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name)); }
#define REAL(name) real(&::name, #name)

struct Shim {
  const std::string root = text_of("CRASH_ROOT"), record = text_of("CRASH_RECORD");
  std::string call;  // that is to fail
  int error = 0, first = 0, seen = 0;
  bool for_ever = false;
  int log = -1, data = -1;
  std::map<std::pair<dev_t, ino_t>, off_t> sizes;  // of files that stdio writes

  Shim() {
    char name[32] = "", plus = 0;
    if (std::sscanf(text_of("CRASH_FAULT").c_str(), "%31s %d %d%c", name, &error, &first, &plus) >= 3)
      call = name, for_ever = plus == '+';
    if (record.empty()) return;
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    log = REAL(open)(record.c_str(), flags, 0600), data = REAL(open)((record + ".data").c_str(), flags, 0600);
  }

  // Whether this call is to fail; errno says why.
  bool fails(const char* name, const std::string& path) {
    if (call != name || !(++seen == first || (for_ever && seen > first))) return false;
    note(std::string("fault\t") + name + "\t" + path);
    errno = error;
    return true;
  }
  void note(const std::string& line) const {
    const int before = errno;
    if (log >= 0) (void)!REAL(write)(log, (line + "\n").data(), line.size() + 1);
    errno = before;
  }
};

Shim& shim() {
  static Shim* const the = new Shim;  // never destroyed: files are closed at the very end
  return *the;
}

// Relative to the root; empty: not below it.
std::string below(const std::string& path) {
  const std::string& root = shim().root;
  return !root.empty() && path.starts_with(root + "/") ? path.substr(root.size() + 1) : "";
}
std::string of_fd(int fd) {
  char path[4096];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return n > 0 ? std::string(path, size_t(n)) : "";
}
std::string below(int fd) { return below(of_fd(fd)); }
std::string below(int folder, const char* path) {
  if (path[0] == '/') return below(std::string(path));
  char here[4096];
  const std::string base = folder != AT_FDCWD ? of_fd(folder) : ::getcwd(here, sizeof here) ? here : "";
  std::string out = base + "/" + path;
  while (out.ends_with('/')) out.pop_back();
  return below(out);
}
bool exists(int folder, const char* path) {
  struct stat s {};
  return ::fstatat(folder, path, &s, AT_SYMLINK_NOFOLLOW) == 0;
}

// A call about names: `lines` is noted if it succeeds.
template <class F> int change(const char* name, const std::string& path, const std::string& line, F&& f) {
  const std::lock_guard lock(mutex);
  if (!path.empty() && shim().fails(name, path)) return -1;
  const int out = f();
  if (!path.empty() && out == 0) shim().note(line);
  return out;
}

template <class F> int open_file(int folder, const char* path, int flags, F&& f) {
  const std::lock_guard lock(mutex);
  const std::string known = flags & (O_WRONLY | O_RDWR | O_CREAT) ? below(folder, path) : "";
  if (known.empty()) return f();
  if (shim().fails("open", known)) return -1;
  const bool there = exists(folder, path);
  const int out = f();
  if (out >= 0 && !there) shim().note("create\t" + known);
  if (out >= 0 && there && (flags & O_TRUNC)) shim().note("truncate\t" + known + "\t0");
  return out;
}

void note_write(const std::string& path, off_t offset, const void* bytes, size_t count) {
  if (shim().data < 0) return;
  (void)!REAL(write)(shim().data, bytes, count);
  shim().note("write\t" + path + "\t" + std::to_string(offset) + "\t" + std::to_string(count));
}

// What stdio has added to a file since it was last looked at.
void note_growth(int fd, const std::string& path) {
  struct stat s {};
  if (::fstat(fd, &s) != 0) return;
  off_t& known = shim().sizes[{s.st_dev, s.st_ino}];
  if (s.st_size > known && shim().data >= 0) {
    std::string bytes(size_t(s.st_size - known), '\0');
    const int again = REAL(open)(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC, 0);
    (void)!::pread(again, bytes.data(), bytes.size(), known);
    REAL(close)(again);
    note_write(path, known, bytes.data(), bytes.size());
  }
  known = s.st_size;
}

// What another call has written to a file of stdio's is noted already.
void seen(int fd) {
  struct stat s {};
  if (::fstat(fd, &s) == 0 && shim().sizes.count({s.st_dev, s.st_ino})) shim().sizes[{s.st_dev, s.st_ino}] = s.st_size;
}

template <class F> FILE* open_stream(const char* path, const char* mode, F&& f) {
  const std::lock_guard lock(mutex);
  const std::string known = mode[0] == 'r' ? "" : below(AT_FDCWD, path);
  if (known.empty()) return f();
  if (shim().fails("open", known)) return nullptr;
  const bool there = exists(AT_FDCWD, path);
  FILE* const out = f();
  if (!out) return out;
  if (!there) shim().note("create\t" + known);
  if (there && mode[0] == 'w') shim().note("truncate\t" + known + "\t0");
  struct stat s {};
  if (::fstat(::fileno(out), &s) == 0) shim().sizes[{s.st_dev, s.st_ino}] = s.st_size;
  return out;
}

int sync_file(const char* name, int fd, int (*sync)(int)) {
  const std::lock_guard lock(mutex);
  struct stat s {};
  const bool folder = ::fstat(fd, &s) == 0 && S_ISDIR(s.st_mode);
  const std::string path = of_fd(fd) == shim().root ? "." : below(fd);
  const char* const what = folder ? "syncdir" : name;
  return change(what, path, what + ("\t" + path), [&] { return sync(fd); });
}

template <class F> int cut(const std::string& path, off_t size, F&& f) {
  return change("ftruncate", path, "truncate\t" + path + "\t" + std::to_string(size), std::forward<F>(f));
}

}  // namespace

#define WITH_MODE(flags)                                                            \
  va_list rest;                                                                     \
  va_start(rest, flags);                                                            \
  const mode_t mode = (flags) & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
  va_end(rest)
#define OPEN(name)                                                                          \
  int name(const char* path, int flags, ...) {                                              \
    WITH_MODE(flags);                                                                       \
    return open_file(AT_FDCWD, path, flags, [&] { return REAL(name)(path, flags, mode); }); \
  }
#define OPENAT(name)                                                                              \
  int name(int folder, const char* path, int flags, ...) {                                        \
    WITH_MODE(flags);                                                                             \
    return open_file(folder, path, flags, [&] { return REAL(name)(folder, path, flags, mode); }); \
  }
#define FOPEN(name)                                                         \
  FILE* name(const char* path, const char* mode) {                          \
    return open_stream(path, mode, [&] { return REAL(name)(path, mode); }); \
  }
#define MKOSTEMP(name)                                                    \
  int name(char* path, int flags) {                                       \
    const std::lock_guard lock(mutex);                                    \
    const std::string known = below(AT_FDCWD, path);                      \
    if (!known.empty() && shim().fails("open", known)) return -1;         \
    const int out = REAL(name)(path, flags);                              \
    if (!known.empty() && out >= 0) shim().note("create\t" + below(out)); \
    return out;                                                           \
  }
#define FTRUNCATE(name)                                                         \
  int name(int fd, off_t size) noexcept {                                       \
    const int out = cut(below(fd), size, [&] { return REAL(name)(fd, size); }); \
    seen(fd);                                                                   \
    return out;                                                                 \
  }

extern "C" {
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)
MKOSTEMP(mkostemp)
MKOSTEMP(mkostemp64)
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

ssize_t write(int fd, const void* bytes, size_t count) {
  const std::lock_guard lock(mutex);
  const std::string path = fd > 2 ? below(fd) : "";
  if (path.empty()) return REAL(write)(fd, bytes, count);
  if (shim().fails("write", path)) return -1;
  const off_t offset = ::lseek(fd, 0, SEEK_CUR);
  const ssize_t out = REAL(write)(fd, bytes, count);
  if (out > 0) note_write(path, offset, bytes, size_t(out));
  seen(fd);
  return out;
}
int fflush(FILE* file) {
  const std::lock_guard lock(mutex);
  const std::string path = file ? below(::fileno(file)) : "";
  if (path.empty() || !::__fwritable(file)) return REAL(fflush)(file);
  if (::__fpending(file) > 0 && shim().fails("write", path)) return EOF;
  const int out = REAL(fflush)(file);
  note_growth(::fileno(file), path);
  return out;
}
int fclose(FILE* file) {
  const std::lock_guard lock(mutex);
  if (!below(::fileno(file)).empty()) fflush(file);
  return REAL(fclose)(file);
}
int close(int fd) {
  const std::lock_guard lock(mutex);
  const std::string path = below(fd);
  const bool bad = !path.empty() && shim().fails("close", path);
  const int why = errno, out = REAL(close)(fd);  // it is closed all the same, as Linux does it
  if (!path.empty()) shim().note("close\t" + path);
  if (bad) errno = why;
  return bad ? -1 : out;
}
int fsync(int fd) { return sync_file("fsync", fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_file("fdatasync", fd, REAL(fdatasync)); }

int truncate(const char* path, off_t size) noexcept {
  return cut(below(AT_FDCWD, path), size, [&] { return REAL(truncate)(path, size); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  const std::string known = below(AT_FDCWD, path);
  return change("mkdir", known, "mkdir\t" + known, [&] { return REAL(mkdir)(path, mode); });
}
int symlink(const char* to, const char* path) noexcept {
  const std::string known = below(AT_FDCWD, path);
  return change("symlink", known, std::string("symlink\t") + to + "\t" + known,
                [&] { return REAL(symlink)(to, path); });
}
int rename(const char* from, const char* to) noexcept {
  const std::string old = below(AT_FDCWD, from), now = below(AT_FDCWD, to);
  return change("rename", old.empty() ? old : now, "rename\t" + old + "\t" + now,
                [&] { return REAL(rename)(from, to); });
}
int unlink(const char* path) noexcept {
  const std::string known = below(AT_FDCWD, path);
  return change("unlink", known, "unlink\t" + known, [&] { return REAL(unlink)(path); });
}
int rmdir(const char* path) noexcept {
  const std::string known = below(AT_FDCWD, path);
  return change("unlink", known, "rmdir\t" + known, [&] { return REAL(rmdir)(path); });
}
int remove(const char* path) noexcept {
  struct stat s {};
  const bool folder = ::lstat(path, &s) == 0 && S_ISDIR(s.st_mode);
  const std::string known = below(AT_FDCWD, path);
  return change("unlink", known, (folder ? "rmdir\t" : "unlink\t") + known, [&] { return REAL(remove)(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  const std::string known = below(folder, path);
  return change("unlink", known, (flags & AT_REMOVEDIR ? "rmdir\t" : "unlink\t") + known,
                [&] { return REAL(unlinkat)(folder, path, flags); });
}
}
