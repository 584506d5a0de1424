#pragma once
#include <string>
#include <string_view>

namespace ringtape {

// A file that appears under its name complete or not at all: written beside it under a temporary name,
// flushed to the disk and renamed by commit(). Without commit() nothing stays. Throws IoError with the path
// and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
};

void write_file(const std::string& path, std::string_view content);  // atomically
std::string read_file(const std::string& path);                      // throws IoError

}  // namespace ringtape
