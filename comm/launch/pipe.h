#pragma once
#include <string_view>
#include <utility>

namespace ringtape::comm {

// A file descriptor that is closed with its owner.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~Fd() { reset(); }
  void reset();
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Pipe { Fd read, write; };
Pipe make_pipe();                            // closed on exec; throws IoError
bool write_all(int fd, std::string_view s);  // false if it cannot be written; waits where the descriptor does not

}  // namespace ringtape::comm
