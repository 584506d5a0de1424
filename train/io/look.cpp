#include "train/io/look.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "core/check.h"
#include "core/limits.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_look(const std::string& path, int error) {
  detail::fail<IoError>({path, ": cannot read: ", reason(error), "; start again when it can be read"});
}

// ENOTDIR: what would be the folder is a file.
bool means_absent(int error) { return error == ENOENT || error == ENOTDIR; }

fs::file_type type_of(const struct stat& s) {
  return S_ISREG(s.st_mode)   ? fs::file_type::regular
         : S_ISDIR(s.st_mode) ? fs::file_type::directory
         : S_ISLNK(s.st_mode) ? fs::file_type::symlink
                              : fs::file_type::unknown;
}

// Throws if the path, which was not found, is or is below a link to nothing.
void check_links_above(const std::string& path) {
  struct stat s {};
  for (fs::path at = path; !at.empty() && at != at.root_path(); at = at.parent_path()) {
    if (::lstat(at.c_str(), &s) != 0) {
      if (!means_absent(errno)) fail_to_look(at.string(), errno);
      continue;
    }
    if (!S_ISLNK(s.st_mode) || ::stat(at.c_str(), &s) == 0) return;
    if (!means_absent(errno)) fail_to_look(at.string(), errno);
    std::error_code error;
    detail::fail<IoError>({at.string(), ": is a link to ", fs::read_symlink(at, error).string(),
                           ", which is not there; bring that back (is its disk mounted?) or remove the link"});
  }
}

fs::file_type look(const std::string& path, int (*stat_call)(const char*, struct stat*)) {
  struct stat s {};
  if (stat_call(path.c_str(), &s) == 0) return type_of(s);
  if (!means_absent(errno)) fail_to_look(path, errno);
  check_links_above(path);
  return fs::file_type::not_found;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

fs::file_type type_at(const std::string& path) { return look(path, ::stat); }
fs::file_type name_type(const std::string& path) { return look(path, ::lstat); }

bool is_there(const std::string& path) { return type_at(path) != fs::file_type::not_found; }
bool is_folder_at(const std::string& path) { return type_at(path) == fs::file_type::directory; }

std::vector<std::string> names_in(const std::string& folder) {
  if (!is_there(folder)) return {};
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  if (!open) fail_to_look(folder, errno);
  std::vector<std::string> out;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (!entry && errno != 0) fail_to_look(folder, errno);
    if (!entry) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ringtape
