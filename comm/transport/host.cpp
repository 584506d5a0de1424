#include "comm/transport/host.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
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

std::string outer_address(const Store& store) {
  std::string found = store.address();
  if (!found.empty() && !found.starts_with("127.") && found != "::1") return found;
  found.clear();
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* i = all; i && found.empty(); i = i->ifa_next) {
      if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        continue;
      char text[NI_MAXHOST];
      const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (::getnameinfo(i->ifa_addr, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) found = text;
    }
  ::freeifaddrs(all);
  return found;
}

PeerProcess::PeerProcess(pid_t pid) : pid_(pid), fd_(int(::syscall(SYS_pidfd_open, pid, 0))) {}

bool PeerProcess::ended() const {
  if (!fd_) return ::kill(pid_, 0) != 0 && errno == ESRCH;
  pollfd watched{fd_.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1;
}

}  // namespace ringtape::comm
