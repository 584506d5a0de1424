#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/check.h"

// What the fuzz targets share. A target is a file NAME_fuzz.cpp with LLVMFuzzerTestOneInput; an exception that leaves
// it is a finding, as are what the sanitizers find and an allocation that is out of all proportion to the input.
namespace ringtape::test {

// Ends the process unless it holds: a promise of the reader is broken.
inline void require(bool holds) {
  if (!holds) std::abort();
}

// A file in memory with this content, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    require(fd_ >= 0 && ::write(fd_, content.data(), content.size()) == ssize_t(content.size()));
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// An empty folder, in memory where the system has one there.
class MemoryFolder {
 public:
  MemoryFolder()
      : path_((std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path()) /
              "ringtape-fuzz-XXXXXX") {
    require(::mkdtemp(path_.data()));
  }
  MemoryFolder(const MemoryFolder&) = delete;
  ~MemoryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, std::string_view content) const {
    const std::string to = path_ + "/" + name;
    std::ofstream(to, std::ios::binary) << content;
    return to;
  }

 private:
  std::string path_;
};

// The next line of `rest`, which loses it.
inline std::string_view next_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  return line;
}

// Runs f; whether it came to its end. What it may throw are the errors that tell a user
// what is wrong with a file or a value.
template <class F> bool read_or_refuse(F&& f) {
  try {
    f();
    return true;
  } catch (const FormatError&) {
  } catch (const IoError&) {
  } catch (const UsageError&) {
  }
  return false;
}

}  // namespace ringtape::test

// The bytes of an input as text, in a target.
#define RT_FUZZ_TARGET(input)                                               \
  static void drive(std::string_view input);                                \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    drive({reinterpret_cast<const char*>(data), size});                     \
    return 0;                                                               \
  }                                                                         \
  static void drive(std::string_view input)
