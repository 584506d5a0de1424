#include "comm/launch/pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "core/check.h"
#include "core/limits.h"

namespace ringtape::comm {

PipeEnds make_pipe() {
  int ends[2];
  RT_CHECK_AS(IoError, ::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe: ", reason(errno));
  return {Fd(ends[0]), Fd(ends[1])};
}

bool write_all(int fd, std::string_view s) {
  while (!s.empty()) {
    const ssize_t n = ::write(fd, s.data(), s.size());
    if (n >= 0) {
      s.remove_prefix(size_t(n));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace ringtape::comm
