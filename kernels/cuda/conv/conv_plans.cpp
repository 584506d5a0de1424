#include "kernels/cuda/conv/conv_plans.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/env.h"
#include "core/log.h"

namespace ringtape::cuda {
namespace {

namespace fs = std::filesystem;

// The file: this line, then a line "problem<tab>engine" for each.
constexpr std::string_view kFirstLine = "ringtape convolution plans 1\n";
constexpr size_t kMaxBytes = size_t{64} << 20;

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// All bytes of a file; nullopt with errno. What is no file, such as /dev/null, is not replaced by one.
std::optional<std::string> content_of(const std::string& path) {
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);
  struct stat what {};
  if (file.get() < 0 || ::fstat(file.get(), &what) != 0) return {};
  if (!S_ISREG(what.st_mode)) {
    errno = EINVAL;
    return {};
  }
  std::string out;
  char part[1 << 16];
  ssize_t n = 0;
  while (out.size() <= kMaxBytes && (n = ::read(file.get(), part, sizeof part)) > 0) out.append(part, size_t(n));
  if (n < 0) return {};
  return out;
}

// nullopt: not such a file, or damaged.
std::optional<std::map<std::string, std::string>> parsed_plans(std::string_view text) {
  if (!text.starts_with(kFirstLine) || text.back() != '\n' || text.size() > kMaxBytes) return {};
  std::map<std::string, std::string> out;
  for (text.remove_prefix(kFirstLine.size()); !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t tab = line.find('\t');
    const bool two_parts = tab != line.npos && tab > 0 && tab + 1 < line.size();
    if (!two_parts || line.find('\t', tab + 1) != line.npos || line.find('\0') != line.npos) return {};
    out.emplace(line.substr(0, tab), line.substr(tab + 1));
    text.remove_prefix(line.size() + 1);
  }
  return out;
}

// Replaces a file, whole or not at all. Returns the system's error, or 0.
int replace_file(const std::string& path, const std::string& text) {
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return errno;
  int error = 0;
  for (size_t done = 0; done < text.size() && !error;) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0) error = errno == EINTR ? 0 : errno;
    else done += size_t(n);
  }
  if (!error && ::fsync(fd)) error = errno;
  if (::close(fd) && !error) error = errno;
  if (!error && ::rename(temporary.c_str(), path.c_str())) error = errno;
  if (error) ::unlink(temporary.c_str());
  return error;
}

std::string default_path() {
  const std::string folder = env::cache_folder();
  return folder.empty() ? "" : folder + "/conv_plans";
}

}  // namespace

PlanChoices::PlanChoices(std::string path) : path_(std::move(path)) {
  std::error_code none;
  const fs::path target = fs::canonical(path_, none);  // of a link, which stays one
  if (!none) path_ = target.string();
}

std::optional<std::string> PlanChoices::find(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (!engines_.contains(problem)) read();
  const auto found = engines_.find(problem);
  return found == engines_.end() ? std::nullopt : std::optional(found->second);
}

// The lock of the folder is only for this short time, and only so that no process overwrites what another one just
// added: a file system without locks may lose a choice, which is measured again.
std::string PlanChoices::put(const std::string& problem, const std::string& engine, bool replaces) {
  const std::lock_guard lock(mutex_);
  std::error_code failed;
  if (!path_.empty()) fs::create_directories(fs::absolute(path_).parent_path(), failed);
  if (failed) give_up("its folder cannot be made: " + failed.message());
  const OpenFile folder(path_.empty() ? "" : fs::absolute(path_).parent_path().string(), O_RDONLY | O_DIRECTORY);
  if (folder.get() >= 0) ::flock(folder.get(), LOCK_EX);
  read();
  const auto [place, added] = engines_.emplace(problem, engine);
  const bool replaced = replaces && place->second != engine;
  if (replaced) place->second = engine;
  if (added || replaced) write();
  return place->second;
}

std::string PlanChoices::keep(const std::string& problem, const std::string& engine) {
  return put(problem, engine, false);
}
void PlanChoices::replace(const std::string& problem, const std::string& engine) { put(problem, engine, true); }

void PlanChoices::read() {
  if (path_.empty()) return;
  const std::optional<std::string> text = content_of(path_);
  if (text ? text->empty() : errno == ENOENT) return;
  if (!text) return give_up(std::string("it cannot be read: ") + std::strerror(errno));
  auto engines = parsed_plans(*text);
  if (!engines) return give_up("it is damaged, or no file of convolution plans");
  engines_.merge(*engines);
}

void PlanChoices::write() {
  if (path_.empty()) return;
  std::string text(kFirstLine);
  for (const auto& [problem, engine] : engines_) text += problem + '\t' + engine + '\n';
  if (const int error = replace_file(path_, text))
    give_up(std::string("it cannot be written: ") + std::strerror(error));
}

void PlanChoices::give_up(const std::string& reason) {
  log_warn(path_, ": ", reason,
           "; it is left as it is, and this process measures its convolutions itself; delete the file, or set "
           "RINGTAPE_CONV_PLANS to another one, or to off");
  path_.clear();
}

PlanChoices* plan_choices() {
  static PlanChoices* const made = [] {
    const std::string& set = env::conv_plans();
    return set == "off" ? nullptr : new PlanChoices(set.empty() ? default_path() : set);
  }();
  return made;
}

}  // namespace ringtape::cuda
