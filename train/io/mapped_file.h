#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace ringtape {

// A file that is read as memory is. Where it cannot be read, because it has become shorter or its disk fails, the
// system would end the process without a word (SIGBUS): here zeros are read instead, and check() throws from then on.
class MappedFile {
 public:
  // `bytes`: of an open file, which may be closed afterwards. Throws IoError with the path and the system's reason.
  MappedFile(std::string path, int fd, size_t bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  const std::string& path() const { return path_; }
  void check() const;  // throws IoError if some of what was read was not in the file
  // Other bytes for this process, not in the file; who reads them meanwhile may see both.
  void replace(size_t offset, const void* bytes, size_t size);

 private:
  std::string path_;
  uint8_t* data_ = nullptr;
  size_t bytes_;
  size_t place_;  // among the mapped files
};

}  // namespace ringtape
