#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/io/file.h"

// ZIP archives (pkware.com/appnote) of files that are stored, not compressed, as PyTorch writes them; also beyond 4 GB.
namespace ringtape {

struct ZipEntry {
  std::string name;
  uint64_t size = 0;    // bytes
  uint32_t crc = 0;     // CRC-32; 0: PyTorch can leave it out
  uint64_t header = 0;  // where its local header begins
  bool stored = true;   // neither compressed nor encrypted
};

inline constexpr uint64_t kLargestDirectory = 100'000'000;  // bytes of the list of a ZIP archive's files

// Reads an archive. Throws IoError, and FormatError, beginning with the path, for what is no ZIP archive, for two files
// of one name, for files outside the archive, and above the limit above. Needs a few times the memory of the list.
class ZipReader {
 public:
  explicit ZipReader(std::string path);
  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* find(const std::string& name) const;               // null if there is none

  // Bytes [offset, offset + bytes) of a file. Throws FormatError if it is compressed or has fewer.
  void read(const ZipEntry& entry, uint64_t offset, void* to, uint64_t bytes);
  std::string read(const ZipEntry& entry, uint64_t limit);  // all of it; FormatError also above `limit` bytes
  void check(const ZipEntry& entry);                        // throws FormatError unless its bytes have its CRC-32

 private:
  void find_directory(uint64_t& begin, uint64_t& bytes, uint64_t& count);

  std::string path_;
  InputFile file_;
  std::vector<ZipEntry> entries_;
};

// Writes an archive atomically. Each file begins at a multiple of 64 bytes, so that it can be mapped.
class ZipWriter {
 public:
  using Sink = std::function<void(const void* data, size_t bytes)>;
  explicit ZipWriter(const std::string& path) : file_(path) {}
  // Adds a file; `produce` gives its bytes to the sink, and is called twice.
  void add(const std::string& name, const std::function<void(const Sink&)>& produce);
  void add(const std::string& name, std::string_view content);
  void commit();

 private:
  void write(std::string_view bytes);

  AtomicFile file_;
  uint64_t at_ = 0, count_ = 0;
  std::string directory_;
};

}  // namespace ringtape
