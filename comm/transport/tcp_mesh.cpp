#include "comm/transport/tcp_mesh.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "comm/store/socket.h"
#include "comm/store/token.h"
#include "comm/transport/host.h"
#include "core/env.h"
#include "core/limits.h"

namespace ringtape::comm {

namespace {

using Bytes32 = std::array<unsigned char, 32>;

std::string_view view(const Bytes32& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Bytes32 bytes_of(std::string_view text) {
  Bytes32 out;
  RT_CHECK(text.size() == out.size());
  std::copy(text.begin(), text.end(), out.begin());
  return out;
}

// The messages of the two ends, in this order: the acceptor's challenge, the connector's hello, the acceptor's welcome.
struct Hello {
  char magic[8] = {'r', 't', '-', 't', 'c', 'p', '0', '1'};
  int32_t from = 0, to = 0, socket = 0, sockets = 0;
  Bytes32 challenge{};  // of the connector
  Bytes32 proof{};
};

Bytes32 proof(const std::string& secret, const char* what, const Bytes32& challenge, const Hello& hello) {
  const std::string_view said(reinterpret_cast<const char*>(&hello), offsetof(Hello, proof));
  return bytes_of(hmac(secret, concat(what, view(challenge), said)));
}

bool same_proof(const Bytes32& a, const Bytes32& b) { return comm::same(view(a), view(b)); }

// A numeric address and port in the format of the system.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;
  Endpoint(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    RT_CHECK_AS(CommError, error == 0, "tcp: '", host, "' port ", port, " is not an address: ", ::gai_strerror(error));
    std::memcpy(&address, found->ai_addr, found->ai_addrlen);
    bytes = found->ai_addrlen;
    ::freeaddrinfo(found);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

class Mesh {
 public:
  Mesh(const Context& context, int sockets, const Deadline& deadline)
      : context_(context), sockets_(sockets), deadline_(deadline) {}

  std::vector<std::vector<Fd>> connect() {
    all_.resize(size_t(context_.size));
    const std::string host = where();
    check_descriptors();
    Fd listener = listen(host);
    for (int r = 0; r < context_.rank; ++r) all_[size_t(r)].resize(size_t(sockets_));
    accept_all(listener.get());
    for (int r = context_.rank + 1; r < context_.size; ++r)
      for (int s = 0; s < sockets_; ++s) all_[size_t(r)].push_back(connect_to(r, s));
    return std::move(all_);
  }

 private:
  static constexpr int kSpare = 64;  // descriptors for everything else that a rank opens
  static constexpr int kStrangers = 512;

  // An accepted connection that has not yet proved the secret.
  struct Stranger {
    Fd fd;
    Bytes32 challenge;
    Hello hello;
    size_t received = 0;
  };

  // The address by which the others reach this host. Also decides the number of sockets.
  std::string where() {
    Store& store = *context_.store;
    const std::string own = host_identity("net");
    store.set(concat("tcp/host/", context_.rank), concat(own, " ", sockets_));
    for (int r = 0; r < context_.size; ++r) {
      std::istringstream in(store.wait(concat("tcp/host/", r), deadline_));
      std::string host;
      int sockets = 0;
      in >> host >> sockets;
      RT_CHECK_AS(CommError, sockets == sockets_, "tcp: rank ", r, " has RINGTAPE_TCP_SOCKETS=", sockets, ", rank ",
                  context_.rank, " has ", sockets_, " (0: not set); it must be the same on all ranks");
      together_ = together_ && host == own;
    }
    if (sockets_ == 0) sockets_ = together_ ? 1 : 4;
    if (together_) return "127.0.0.1";
    const std::string address = outer_address(store);
    RT_CHECK_AS(CommError, !address.empty(), "tcp: rank ", context_.rank,
                " has no network except the loopback, but not all ranks run on its host");
    return address;
  }

  // All descriptors are counted before the first is opened: a rank that runs out halfway would leave the others
  // waiting.
  void check_descriptors() {
    const int64_t connections = int64_t(context_.size - 1) * sockets_;
    const std::string lack = lack_of_descriptors(connections + kSpare);
    RT_CHECK_AS(CommError, lack.empty(), "tcp: rank ", context_.rank, " needs ", connections, " connections, ",
                sockets_, " to each of ", context_.size - 1, " ranks: ", lack);
  }

  Fd listen(const std::string& host) {
    Store& store = *context_.store;
    if (context_.rank == 0) store.set("tcp/secret", random_token());
    secret_ = store.wait("tcp/secret", deadline_);
    Fd listener = listen_on(host, 0);
    store.set(concat("tcp/", context_.rank), concat(host, " ", port_of(listener)));
    return listener;
  }

  // Waits for events with poll(); a raised failure or the deadline always ends it.
  void poll(std::vector<pollfd>& fds, const std::string& what) { (void)poll(fds, what, deadline_); }
  bool poll(std::vector<pollfd>& fds, const std::string& what, const Deadline& most) {  // false: `most` has passed
    for (;;) {
      const bool any = ::poll(fds.data(), fds.size(), std::min({deadline_.left_ms(), most.left_ms(), 50})) > 0;
      context_.failure->check();
      RT_CHECK_AS(CommError, !deadline_.passed(), "tcp: rank ", context_.rank, " waited ", context_.timeout.count(),
                  " s for ", what);
      if (any || most.passed()) return any;
    }
  }

  // Accepts connections from all lower ranks, in any order. A connection that sends nothing, or anything except a hello
  // with a proof, delays nobody.
  void accept_all(int listener) {
    std::vector<Stranger> strangers;
    for (int missing = context_.rank * sockets_; missing > 0;) {
      std::vector<pollfd> fds{{listener, POLLIN, 0}};
      for (const Stranger& s : strangers) fds.push_back({s.fd.get(), POLLIN, 0});
      poll(fds, concat(missing, missing == 1 ? " connection" : " connections", " from ", absent()));
      for (size_t i = strangers.size(); i-- > 0;) {
        if (fds[i + 1].revents == 0) continue;
        Stranger& s = strangers[i];
        const ssize_t n = ::recv(s.fd.get(), reinterpret_cast<char*>(&s.hello) + s.received,
                                 sizeof s.hello - s.received, MSG_DONTWAIT);
        if (n > 0) s.received += size_t(n);
        if (n > 0 && s.received < sizeof s.hello) continue;
        if (n > 0 && welcome(s)) --missing;
        strangers.erase(strangers.begin() + ptrdiff_t(i));
      }
      if (fds[0].revents == 0) continue;
      // The expected connections and some more, which take no descriptors from them.
      if (strangers.size() >= size_t(std::min(missing + kSpare / 2, kStrangers))) strangers.erase(strangers.begin());
      Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      RT_CHECK_AS(CommError, fd || !is_lack_of_descriptors(errno), "tcp: rank ", context_.rank,
                  " cannot accept a connection, ", missing, " are missing: ", reason(errno));
      Stranger s{std::move(fd), bytes_of(random_bytes(kNonce)), {}, 0};
      if (!s.fd ||
          ::send(s.fd.get(), s.challenge.data(), s.challenge.size(), MSG_NOSIGNAL) != ssize_t(s.challenge.size()))
        continue;
      strangers.push_back(std::move(s));
    }
  }

  bool welcome(Stranger& s) {
    const Hello& h = s.hello;
    if (std::memcmp(h.magic, Hello().magic, sizeof h.magic) != 0 ||
        !same_proof(h.proof, proof(secret_, "hello", s.challenge, h)))
      return false;
    if (h.to != context_.rank || h.from < 0 || h.from >= context_.rank) return false;
    if (h.socket < 0 || h.socket >= sockets_ || h.sockets != sockets_) return false;
    Fd& place = all_[size_t(h.from)][size_t(h.socket)];
    const Bytes32 answer = proof(secret_, "welcome", s.challenge, h);
    if (place || ::send(s.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL) != ssize_t(answer.size())) return false;
    place = std::move(s.fd);
    tune(place.get());
    return true;
  }

  std::string absent() const {
    std::string ranks;
    for (int r = 0; r < context_.rank; ++r)
      for (const Fd& fd : all_[size_t(r)])
        if (!fd) {
          ranks += concat(ranks.empty() ? "rank " : ", ", r);
          break;
        }
    return ranks;
  }

  Fd connect_to(int r, int socket) {
    std::istringstream in(context_.store->wait(concat("tcp/", r), deadline_));
    std::string host, port;
    in >> host >> port;
    const Endpoint peer(host, port);
    const std::string what = concat("rank ", r, " at ", host, " port ", port);
    Fd fd(::socket(peer.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    RT_CHECK_AS(CommError, fd, "tcp: rank ", context_.rank, " cannot create a socket for ", what, ": ", reason(errno));
    int error = ::connect(fd.get(), peer.get(), peer.bytes) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      std::vector<pollfd> fds{{fd.get(), POLLOUT, 0}};
      socklen_t bytes = sizeof error;
      if (!poll(fds, what, Deadline(Seconds(env::heartbeat())))) error = ETIMEDOUT;  // its kernel would have answered
      else ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    RT_CHECK_AS(CommError, error == 0, "tcp: rank ", context_.rank, " cannot connect to ", what, ": ",
                std::strerror(error), "; is it running, and does a firewall let ranks reach each other?");
    Bytes32 challenge, answer;
    receive(fd.get(), challenge, what);
    Hello hello{.from = context_.rank,
                .to = r,
                .socket = socket,
                .sockets = sockets_,
                .challenge = bytes_of(random_bytes(kNonce))};
    hello.proof = proof(secret_, "hello", challenge, hello);
    const bool sent = ::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) == ssize_t(sizeof hello);
    RT_CHECK_AS(CommError, sent, "tcp: ", what, " closed the connection: ", std::strerror(errno));
    receive(fd.get(), answer, what);
    RT_CHECK_AS(CommError, same_proof(answer, proof(secret_, "welcome", challenge, hello)),
                "tcp: the process that answered as ", what, " does not know this job's secret");
    tune(fd.get());
    return fd;
  }

  void receive(int fd, Bytes32& bytes, const std::string& from) {
    for (size_t received = 0; received < bytes.size();) {
      std::vector<pollfd> fds{{fd, POLLIN, 0}};
      poll(fds, from);
      const ssize_t n = ::recv(fd, bytes.data() + received, bytes.size() - received, MSG_DONTWAIT);
      RT_CHECK_AS(CommError, n > 0, "tcp: ", from, " closed the connection before it was open: ",
                  n == 0 ? "it did not accept this rank" : std::strerror(errno));
      received += size_t(n);
    }
  }

  void tune(int fd) const {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // Inside a host no packet is lost and none needs pacing. BBR, the default of some systems, paces with timers; Reno
    // is always available.
    if (together_) ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  }

  const Context& context_;
  int sockets_;
  bool together_ = true;  // on one host
  const Deadline deadline_;
  std::string secret_;
  std::vector<std::vector<Fd>> all_;
};

}  // namespace

std::vector<std::vector<Fd>> connect_mesh(const Context& context, int sockets, const Deadline& deadline) {
  return Mesh(context, sockets, deadline).connect();
}

}  // namespace ringtape::comm
