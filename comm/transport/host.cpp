#include "comm/transport/host.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "core/text.h"

namespace ringtape::comm {

std::string host_identity(const char* names) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  ::stat(concat("/proc/self/ns/", names).c_str(), &space);
  return concat(boot, "/", names, ":", space.st_ino);
}

PeerProcess::PeerProcess(pid_t pid) : pid_(pid), fd_(int(::syscall(SYS_pidfd_open, pid, 0))) {}

bool PeerProcess::ended() const {
  if (!fd_) return ::kill(pid_, 0) != 0 && errno == ESRCH;
  pollfd watched{fd_.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1;
}

}  // namespace ringtape::comm
