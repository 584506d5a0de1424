#include "comm/store/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/limits.h"

namespace ringtape::comm {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  RT_CHECK_AS(CommError, error == 0, "cannot find the address of host '", host, "': ", gai_strerror(error));
  return {found, freeaddrinfo};
}

Fd open_socket(const addrinfo& a) {
  Fd s(::socket(a.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (s) ::setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return s;
}

// Of a connection that has begun: 0 or an errno.
int result_of_connecting(const Fd& s, Deadline deadline) {
  pollfd p{s.get(), POLLOUT, 0};
  int ready = 0;
  while ((ready = ::poll(&p, 1, deadline.left_ms())) < 0 && errno == EINTR) {
  }
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// 0 or an errno.
int finish_connecting(const Fd& s, const addrinfo& a, Deadline deadline) {
  if (::connect(s.get(), a.ai_addr, a.ai_addrlen) == 0) return 0;
  return errno == EINPROGRESS ? result_of_connecting(s, deadline) : errno;
}

}  // namespace

Fd adopt(int fd) {
  Fd s(fd);
  const bool is_open =
      ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) == 0 && ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
  RT_CHECK_AS(CommError, is_open, "file descriptor ", fd, " is not an open socket: ", std::strerror(errno));
  return s;
}

Fd listen_on(const std::string& host, int port) {
  int error = 0;
  const Addresses all = resolve(host, port, AI_PASSIVE);
  std::vector<const addrinfo*> order;
  for (const addrinfo* a = all.get(); a; a = a->ai_next) order.push_back(a);
  if (host.empty())  // IPv6's any address has IPv4's connections, too
    std::stable_partition(order.begin(), order.end(), [](const addrinfo* a) { return a->ai_family == AF_INET6; });
  for (const addrinfo* a : order) {
    Fd s = open_socket(*a);
    const int on = 1, off = 0;
    if (s) ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s && a->ai_family == AF_INET6) ::setsockopt(s.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (s && ::bind(s.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(s.get(), SOMAXCONN) == 0) return s;
    error = errno;
  }
  detail::fail<CommError>(
      {"cannot listen on ", host.empty() ? "any interface" : host, ", port ", port, ": ", reason(error)});
}

int port_of(const Fd& socket) {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  RT_CHECK_AS(CommError, ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&a), &size) == 0,
              "not a socket: ", std::strerror(errno));
  return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(a).sin_port);
}

std::string own_address(const Fd& socket) {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  char text[NI_MAXHOST];
  RT_CHECK_AS(CommError, ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&a), &size) == 0,
              "not a socket: ", std::strerror(errno));
  const int error = ::getnameinfo(reinterpret_cast<sockaddr*>(&a), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  RT_CHECK_AS(CommError, error == 0, "cannot read the own address of a socket: ", ::gai_strerror(error));
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 at a socket of IPv6
  return std::string_view(text).starts_with(kMapped) ? text + kMapped.size() : text;
}

// Sets `error` if it returns no socket.
static Fd try_to_connect(const std::string& host, int port, Deadline deadline, int& error) {
  error = ETIMEDOUT;
  const Addresses all = resolve(host, port, 0);
  for (const addrinfo* a = all.get(); a; a = a->ai_next) {
    Fd s = open_socket(*a);
    error = s ? finish_connecting(s, *a, deadline) : errno;
    if (error == 0) return s;
  }
  return Fd();
}

Fd connect_to(const std::string& host, int port, Deadline deadline) {
  int error;
  Fd socket = try_to_connect(host, port, deadline, error);
  RT_CHECK_AS(CommError, socket, "cannot reach ", host, ":", port, ": ", reason(error));
  return socket;
}

bool refuses(const std::string& host, int port, Deadline deadline) {
  int error;
  return !try_to_connect(host, port, deadline, error) && error == ECONNREFUSED;
}

std::vector<std::string> without_answer(const std::vector<std::string>& addresses, Deadline deadline) {
  const auto answers = [](int error) { return error == 0 || error == ECONNREFUSED || error == ECONNRESET; };
  std::vector<std::string> out;
  std::vector<std::pair<Fd, std::string>> tried;
  for (const std::string& address : addresses) {
    const size_t space = address.find(' ');
    const Addresses a = resolve(address.substr(0, space), std::atoi(address.c_str() + space + 1), AI_NUMERICHOST);
    Fd s = open_socket(*a);
    const int error = !s || ::connect(s.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;  // no socket: not known
    if (error == EINPROGRESS) tried.emplace_back(std::move(s), address);
    else if (!answers(error)) out.push_back(address);
  }
  for (const auto& [s, address] : tried)
    if (!answers(result_of_connecting(s, deadline))) out.push_back(address);
  return out;
}

}  // namespace ringtape::comm
