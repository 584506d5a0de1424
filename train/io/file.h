#pragma once
#include <cstdint>
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

// The same for a folder: its files are written below a temporary name beside it, which commit() makes its own; each of
// them must be on the disk by then, as AtomicFile and write_safetensors see to. A folder of that name is an error.
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

// A name for what is not complete, beside `path`: path.ringtape-XXXXXX.tmp, with six random letters. A process that is
// killed leaves such names, and only what has one may be removed later.
std::string temporary_name(const std::string& path);
bool is_temporary_name(std::string_view name);

// A folder with all above it that are not there yet, each lasting. Throws IoError.
void make_folder(const std::string& path);
// Makes the names in a folder last. Throws IoError if that fails: then nothing that they replace may be removed. A
// folder that cannot be opened, as one that may be written but not read, is left to the system.
void sync_folder(const std::string& path);
// Removes a folder with all in it. Whoever is killed meanwhile leaves it whole or under a temporary name, never half
// under its own. False where it cannot be renamed: then it is as it was. Throws IoError as sync_folder.
bool remove_folder(const std::string& path);

void write_file(const std::string& path, std::string_view content);  // atomically
std::string read_file(const std::string& path);                      // throws IoError
std::string read_file(const std::string& path, int64_t limit);       // and FormatError if it has more bytes than that

}  // namespace ringtape
