#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace ringtape::test {

// Files in /dev/shm with ringtape's name: other tests, and Open MPI's ranks, may run at the same time.
inline std::set<std::string> shared_memory() {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (const std::string name = entry.path().filename().string();
        name.find("ringtape") != std::string::npos && entry.is_regular_file())
      out.insert(name);
  return out;
}

// A folder of mode 0700 that is removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "ringtape-test-XXXXXX") {
    (void)!::mkdtemp(path_.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A forked process that runs f; its exit status is 0, or 1 after an exception. Killed and reaped with this object.
// Create it while this process has no other threads.
class Child {
 public:
  template <class F> explicit Child(F&& f) : pid_(::fork()) {
    if (pid_ != 0) return;
    int status = 0;
    try {
      f();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
      status = 1;
    }
    ::_exit(status);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }

  // Its exit status, or the signal that ended it.
  int wait() {
    int status = 0;
    while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
};

}  // namespace ringtape::test
