#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/store/number.h"
#include "comm/store/socket.h"
#include "comm/store/store.h"
#include "comm/store/token.h"

namespace ringtape::comm {

namespace {

namespace fs = std::filesystem;

// Any key as the name of a file: what is not a letter, a digit, '-' or '_' becomes %hh.
std::string file_name(const std::string& key) {
  std::string name = "key.";
  for (const char c : key) {
    if (std::isalnum(uint8_t(c)) || c == '-' || c == '_') name += c;
    else for (const char part : {'%', "0123456789abcdef"[uint8_t(c) >> 4], "0123456789abcdef"[uint8_t(c) & 15]}) name += part;
  }
  RT_CHECK_AS(CommError, name.size() <= 250, "store: the key '", key.substr(0, 60), "...' is too long for the name of a file");
  return name;
}

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Each process keeps a file `user.*` locked while it is there; the system lets go of the lock when the process ends, however it ends.
// The file's content are its wills, one a line: key, tab, who. `lock` is held by whoever changes several files.
class FileStore : public Store {
 public:
  explicit FileStore(const std::string& folder) : folder_(fs::absolute(folder)), user_(concat("user.", random_token())) {
    std::error_code error;
    fs::create_directories(folder_, error);
    RT_CHECK_AS(CommError, fs::is_directory(folder_), "store: ", folder_.string(), " cannot be made a folder: ", error.message());
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
      ::rmdir(folder_.c_str());  // stays if there is something else in it
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
      // A file system on the network may remember that there was nothing, until the folder is opened again.
      const Fd look_again(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      for (const std::string& key : keys)
        if (auto value = get(key)) return Entry{key, std::move(*value)};
      if (deadline.passed()) return std::nullopt;
      if (round % 16 == 0) execute_wills();
      std::this_thread::sleep_for(std::min<Seconds>(deadline.left(), std::chrono::milliseconds(std::min(1 + round / 8, 20))));
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
    RT_CHECK_AS(CommError, ::write(mine_.get(), line.data(), line.size()) == ssize_t(line.size()), "store: cannot write to ",
                (folder_ / user_).string(), ": ", std::strerror(errno));
  }

 private:
  // Nothing: another holds the lock, and how says not to wait for it.
  static Fd open_locked(const fs::path& path, int how) {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    RT_CHECK_AS(CommError, file, "store: cannot open ", path.string(), ": ", std::strerror(errno));
    while (::flock(file.get(), how) != 0) {
      if (errno == EWOULDBLOCK) return Fd();
      RT_CHECK_AS(CommError, errno == EINTR, "store: ", path.string(), " cannot be locked: ", std::strerror(errno),
                  "; use a folder whose file system has locks");
    }
    return file;
  }

  // Whoever waits for it may find that the last user has removed the file meanwhile.
  Fd lock_all() const {
    for (;;) {
      std::error_code error;
      fs::create_directories(folder_, error);  // open_locked reports what it could not do
      Fd file = open_locked(folder_ / "lock", LOCK_EX);
      struct stat now{};
      if (::fstat(file.get(), &now) == 0 && now.st_nlink > 0) return file;
    }
  }

  template <class F>
  void for_each_file(const std::string& prefix, F&& f) const {
    std::error_code error;  // of a folder that somebody removes meanwhile
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error))
      if (it->path().filename().string().starts_with(prefix)) f(it->path());
  }

  static bool lives(const fs::path& user) {
    const Fd file(::open(user.c_str(), O_RDWR | O_CLOEXEC));
    return file && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
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
      if (lives(user)) return;  // it was about to take its lock
      std::ifstream in(user);
      for (std::string line; std::getline(in, line);) {
        const size_t tab = line.find('\t');
        const std::string name = file_name(line.substr(0, tab));
        if (tab != std::string::npos && ::access((folder_ / name).c_str(), F_OK) != 0) write(name, line.substr(tab + 1) + " died");
      }
      ::unlink(user.c_str());
    });
  }

  // Whole or not at all, for every reader.
  void write(const std::string& name, const std::string& value) {
    const std::lock_guard lock(mutex_);
    const fs::path aside = folder_ / concat("new.", user_);
    std::ofstream out(aside, std::ios::binary);
    out << value;
    out.close();
    RT_CHECK_AS(CommError, out && ::rename(aside.c_str(), (folder_ / name).c_str()) == 0, "store: cannot write to ", folder_.string(),
                ": ", std::strerror(errno));
  }

  const fs::path folder_;
  const std::string user_;
  Fd mine_;
  std::mutex mutex_;  // of the two files that this process writes
};

}  // namespace

std::shared_ptr<Store> file_store(const std::string& folder) { return std::make_shared<FileStore>(folder); }

}  // namespace ringtape::comm
