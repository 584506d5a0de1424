#pragma once
#include <string>
#include <utility>

namespace ringtape::comm {

// A small file that only this user can read, in a folder that only this user can enter; removed with this object.
class PrivateFile {
 public:
  PrivateFile(std::string path, const std::string& text);  // written atomically; replaces an existing file
  PrivateFile(PrivateFile&& other) noexcept : path_(std::move(other.path_)), text_(std::move(other.text_)) {
    other.path_.clear();
  }
  ~PrivateFile();
  // Empty: no such file. Throws CommError if another user could have written it.
  static std::string read(const std::string& path);
  // Unless its text has changed.
  static void remove(const std::string& path, const std::string& text) noexcept;

 private:
  std::string path_, text_;
};

// The path for a name in `folder`; empty: $XDG_RUNTIME_DIR, /run/user/<uid> or /tmp/ringtape-<uid>, which is created.
// Throws CommError if others may enter the folder.
std::string private_path(const std::string& folder, const std::string& name);

}  // namespace ringtape::comm
