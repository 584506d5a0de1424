#pragma once
#include <string>

namespace ringtape::comm {

// A small file that only this user can read, in a folder that is his alone; gone with its owner.
class PrivateFile {
 public:
  PrivateFile(std::string path, const std::string& text);  // appears whole, in the place of another
  PrivateFile(PrivateFile&& other) noexcept : path_(std::move(other.path_)), text_(std::move(other.text_)) {
    other.path_.clear();
  }
  ~PrivateFile();
  // empty: not there. Throws CommError if somebody else could have written it.
  static std::string read(const std::string& path);
  // Unless it says something else by now.
  static void remove(const std::string& path, const std::string& text) noexcept;

 private:
  std::string path_, text_;
};

// The path for a name in `folder`; empty: $XDG_RUNTIME_DIR, /run/user/<uid> or /tmp/ringtape-<uid>, which is made.
// Throws CommError if others may enter it.
std::string private_path(const std::string& folder, const std::string& name);

}  // namespace ringtape::comm
