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

// The same for a folder: its files are written below a temporary name beside it, which commit() makes its own; each of them
// must be on the disk by then, as AtomicFile and write_safetensors see to. A folder of that name is an error.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::string path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  void commit();

 private:
  std::string path_, temporary_;
  bool committed_ = false;
};
inline constexpr const char* kTemporaryFolder = ".tmp";  // how the temporary names of folders end

void write_file(const std::string& path, std::string_view content);  // atomically
std::string read_file(const std::string& path);                      // throws IoError

}  // namespace ringtape
