#pragma once
#include <string>
#include <utility>

#include "comm/deadline.h"

namespace ringtape::comm {

// A file descriptor that is closed with its owner. All are close-on-exec and do not block.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~Socket();
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// An empty host is every interface. Port 0 is any that is free. Throws CommError.
Socket listen_on(const std::string& host, int port);
int port_of(const Socket& socket);             // of this side
std::string own_address(const Socket& socket);  // of this side, in digits

// One attempt. Throws CommError with the reason.
Socket connect_to(const std::string& host, int port, Deadline deadline);

// Takes over a socket that is there already.
Socket adopt(int fd);

}  // namespace ringtape::comm
