#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/base/fd.h"
#include "comm/store/number.h"
#include "comm/store/store.h"
#include "comm/store/token.h"
#include "core/limits.h"

namespace ringtape::comm {

namespace {

namespace fs = std::filesystem;

// Any key as a file name: characters other than letters, digits, '-' and '_' become %hh.
std::string file_name(const std::string& key) {
  std::string name = "key.";
  for (const char c : key) {
    if (std::isalnum(uint8_t(c)) || c == '-' || c == '_') name += c;
    else
      for (const char part : {'%', "0123456789abcdef"[uint8_t(c) >> 4], "0123456789abcdef"[uint8_t(c) & 15]})
        name += part;
  }
  RT_CHECK_AS(CommError, name.size() <= 250, "store: the key '", key.substr(0, 60),
              "...' is too long for the name of a file");
  return name;
}

std::optional<std::string> read_file(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) {
    RT_CHECK_AS(CommError, !is_lack_of_descriptors(errno), "store: cannot open ", path.string(), ": ", reason(errno));
    return std::nullopt;
  }
  std::string out;
  char bytes[16 << 10];
  for (ssize_t n; (n = ::read(file.get(), bytes, sizeof bytes)) != 0;) {
    RT_CHECK_AS(CommError, n > 0 || errno == EINTR, "store: cannot read ", path.string(), ": ", std::strerror(errno));
    if (n > 0) out.append(bytes, size_t(n));
  }
  return out;
}

std::string octal(mode_t mode) {
  std::string out;
  for (const int shift : {9, 6, 3, 0}) out += char('0' + (mode >> shift & 7));
  return out;
}

// The keys are the job's secrets, so a folder that others may enter or change is refused.
void make_private_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  struct stat link {
  }, s{};
  int why = EEXIST;
  // The last process of a job may remove the folder between two of these calls.
  for (int i = 0; i < 100 && why == EEXIST && (::lstat(folder.c_str(), &link) != 0 || ::stat(folder.c_str(), &s) != 0);
       ++i)
    why = ::mkdir(folder.c_str(), 0700) == 0 ? EEXIST : errno;
  RT_CHECK_AS(CommError, S_ISDIR(s.st_mode), "store: ", folder.string(),
              " cannot be made a folder: ", std::strerror(why));
  RT_CHECK_AS(CommError, s.st_uid == ::geteuid() && link.st_uid == ::geteuid(), "store: ", folder.string(),
              " is another user's (", s.st_uid == ::geteuid() ? link.st_uid : s.st_uid, ", this process is ",
              ::geteuid(),
              "'s), who could read the keys of this job; name a folder of your own, or one that does not exist");
  RT_CHECK_AS(CommError, (s.st_mode & 077) == 0, "store: ", folder.string(), " has mode ", octal(s.st_mode & 07777),
              ", so that other users could enter it and read the keys of this job; expected 0700: chmod 700 it, or "
              "name a folder that ",
              "does not exist");
}

// Each process keeps a file `user.*` locked while it uses the store; the system releases the lock when the process
// ends, for whatever reason. The file contains the process's wills, one per line: key, tab, who. A process that changes
// several files holds `lock`.
class FileStore : public Store {
 public:
  explicit FileStore(const std::string& folder)
      : folder_(without_slash(fs::absolute(folder))), user_(concat("user.", random_token())) {
    make_private_folder(folder_);
    const Fd all = lock_all();
    if (live_users() == 0) sweep();
    mine_ = open_locked(folder_ / user_, LOCK_EX);
  }
  ~FileStore() override {
    try {
      const Fd all = lock_all();
      ::unlink((folder_ / user_).c_str());
      mine_ = Fd();
      if (live_users() > 0) return;
      sweep();
      ::unlink((folder_ / "lock").c_str());
      ::rmdir(folder_.c_str());   // fails if it contains other files
    } catch (const CommError&) {  // the folder is gone; there is nothing to clean up
    }
  }

  void set(const std::string& key, const std::string& value) override { write(file_name(key), value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    const Fd all = lock_all();
    if (const auto there = get(key)) return *there;
    write(file_name(key), value);
    return value;
  }
  std::optional<std::string> get(const std::string& key) override { return read_file(folder_ / file_name(key)); }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    for (int round = 0;; ++round) {
      // A network file system may cache that a file does not exist, until the folder is opened again.
      const Fd look_again(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      for (const std::string& key : keys)
        if (auto value = get(key)) return Entry{key, std::move(*value)};
      if (deadline.passed()) return std::nullopt;
      if (round % 16 == 0) execute_wills();
      std::this_thread::sleep_for(
          std::min<Seconds>(deadline.left(), std::chrono::milliseconds(std::min(1 + round / 8, 20))));
    }
  }
  int64_t add(const std::string& key, int64_t amount) override {
    const Fd all = lock_all();
    const int64_t sum = sum_of(key, get(key).value_or(""), amount);
    write(file_name(key), std::to_string(sum));
    return sum;
  }
  void erase(const std::string& key) override { ::unlink((folder_ / file_name(key)).c_str()); }
  void will(const std::string& key, const std::string& who) override {
    const std::lock_guard lock(mutex_);
    const std::string line = concat(key, '\t', who, '\n');
    ::lseek(mine_.get(), 0, SEEK_END);
    RT_CHECK_AS(CommError, ::write(mine_.get(), line.data(), line.size()) == ssize_t(line.size()),
                "store: cannot write to ", (folder_ / user_).string(), ": ", std::strerror(errno));
  }

 private:
  static fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

  // No descriptor: another process holds the lock, and `how` says not to wait for it.
  static Fd open_locked(const fs::path& path, int how) {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    RT_CHECK_AS(CommError, file, "store: cannot open ", path.string(), ": ", reason(errno));
    while (::flock(file.get(), how) != 0) {
      if (errno == EWOULDBLOCK) return Fd();
      RT_CHECK_AS(CommError, errno == EINTR, "store: ", path.string(), " cannot be locked: ", std::strerror(errno),
                  "; use a folder whose file system has locks");
    }
    return file;
  }

  // While this process waited for the lock, the last user may have removed the file.
  Fd lock_all() const {
    for (;;) {
      make_private_folder(folder_);
      Fd file = open_locked(folder_ / "lock", LOCK_EX);
      struct stat now {};
      if (::fstat(file.get(), &now) == 0 && now.st_nlink > 0) return file;
    }
  }

  template <class F> void for_each_file(const std::string& prefix, F&& f) const {
    std::error_code error;  // another process may remove the folder meanwhile
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error))
      if (it->path().filename().string().starts_with(prefix)) f(it->path());
  }

  static bool lives(const fs::path& user) {
    const Fd file(::open(user.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) return errno != ENOENT;  // without a free descriptor to check with, it counts as alive
    return ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
  }
  int live_users() const {
    int count = 0;
    for_each_file("user.", [&](const fs::path& user) { count += lives(user); });
    return count;
  }
  void sweep() const {
    for (const char* const kind : {"key.", "user.", "new."})
      for_each_file(kind, [](const fs::path& file) { ::unlink(file.c_str()); });
  }

  void execute_wills() {
    for_each_file("user.", [&](const fs::path& user) {
      if (user.filename() == user_ || lives(user)) return;
      const Fd all = lock_all();
      if (lives(user)) return;  // it was just about to take its lock
      std::ifstream in(user);
      for (std::string line; std::getline(in, line);) {
        const size_t tab = line.find('\t');
        const std::string name = file_name(line.substr(0, tab));
        if (tab != std::string::npos && ::access((folder_ / name).c_str(), F_OK) != 0)
          write(name, line.substr(tab + 1) + " died");
      }
      ::unlink(user.c_str());
    });
  }

  // Atomic for every reader.
  void write(const std::string& name, const std::string& value) {
    const std::lock_guard lock(mutex_);
    const fs::path aside = folder_ / concat("new.", user_);
    ::unlink(aside.c_str());  // left by a failed write
    const int out = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = out >= 0;
    for (std::string_view rest = value; written && !rest.empty();) {
      const ssize_t n = ::write(out, rest.data(), rest.size());
      written = n > 0 || errno == EINTR;
      if (n > 0) rest.remove_prefix(size_t(n));
    }
    // A network file system may write the data, or find that there is no room, only now. Others must see the name only
    // after that.
    if (out >= 0 && ::close(out) != 0) written = false;
    RT_CHECK_AS(CommError, written && ::rename(aside.c_str(), (folder_ / name).c_str()) == 0, "store: cannot write to ",
                folder_.string(), ": ", reason(errno));
  }

  const fs::path folder_;
  const std::string user_;
  Fd mine_;
  std::mutex mutex_;  // for the two files that this process writes
};

}  // namespace

std::shared_ptr<Store> file_store(const std::string& folder) { return std::make_shared<FileStore>(folder); }

}  // namespace ringtape::comm
