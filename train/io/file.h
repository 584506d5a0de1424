#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace ringtape {

// A file that appears under its name complete or not at all: it is written next to it under a temporary name, flushed
// to the disk and renamed by commit(). Without commit() nothing remains. A link stays: what it leads to is written.
// What is not a file, such as a pipe or a terminal, gets the bytes at once. Throws IoError with the path and the
// system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::string path_, temporary_;  // temporary_: empty for what is not a file
  int fd_ = -1;
};

// Throws IoError if AtomicFile could not write this file now. Changes nothing, and does not open what is not a file.
void check_can_write(const std::string& path);

// The same for a folder: its files are written in a folder with a temporary name, which commit() renames. By then,
// every file must be flushed to the disk, as AtomicFile and write_safetensors do. It is an error if a folder of that
// name exists.
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

// A name for an incomplete file, next to `path`: path.ringtape-XXXXXX.tmp, with six random letters. A killed process
// leaves such names; only files with such names may be removed later.
std::string temporary_name(const std::string& path);
bool is_temporary_name(std::string_view name);

// Makes a folder and all missing parents, and flushes them to the disk. Throws IoError.
void make_folder(const std::string& path);
// Flushes the names in a folder to the disk. Throws IoError if that fails: then nothing that they replace may be
// removed. Does nothing for a folder that this user may write but not read.
void sync_folder(const std::string& path);
// Removes a folder with its content. If the process is killed during this, the folder is complete or under a temporary
// name, never incomplete under its own. Returns false if it cannot be renamed; it is then unchanged. Throws IoError as
// sync_folder.
bool remove_folder(const std::string& path);

// A file that is read at any place. Throws IoError with the path and the system's reason.
class InputFile {
 public:
  explicit InputFile(std::string path);
  uint64_t size() const { return size_; }                // bytes, when it was opened
  void read(uint64_t offset, void* to, uint64_t bytes);  // IoError, too, if the file has become shorter
  std::string read(uint64_t offset, uint64_t bytes);

 private:
  std::string path_;
  std::ifstream stream_;
  uint64_t size_ = 0;
};

void write_file(const std::string& path, std::string_view content);  // atomically
std::string read_file(const std::string& path);                      // throws IoError
std::string read_file(const std::string& path, int64_t limit);  // also FormatError if it has more than `limit` bytes

}  // namespace ringtape
