#include "comm/launch/host_rendezvous.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "comm/launch/fd.h"
#include "core/check.h"

namespace ringtape::comm {

namespace {

// Holds the port; nobody answers there.
class Listener : public RendezvousServer {
 public:
  Listener(bool loopback, int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    RT_CHECK_AS(CommError, ::bind(fd_.get(), any, size) == 0 && ::listen(fd_.get(), 128) == 0 && ::getsockname(fd_.get(), any, &size) == 0,
                "cannot listen at port ", port, ": ", std::strerror(errno), "; another one is given by --master-port");
    port_ = ntohs(address.sin_port);
  }
  int port() const override { return port_; }

 private:
  Fd fd_;
  int port_ = 0;
};

}  // namespace

std::unique_ptr<RendezvousServer> host_rendezvous(bool loopback, int port, const std::string&) {
  return std::make_unique<Listener>(loopback, port);
}

}  // namespace ringtape::comm
