#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <unordered_map>
#include <utility>

#include "comm/store/frame.h"
#include "comm/store/socket.h"
#include "comm/store/state.h"
#include "comm/store/tcp_store.h"
#include "comm/store/token.h"
#include "core/limits.h"
#include "core/log.h"

namespace ringtape::comm {

namespace {

constexpr uint64_t kListeningEvent = 0, kStopEvent = 1, kFirstClientEvent = 2;  // the source of an event
constexpr int kEvents = 64;
constexpr size_t kStrangers = 256;      // maximum number of connections that have not proved the token
constexpr size_t kBacklog = 64u << 20;  // maximum number of unread bytes of a client

}  // namespace

struct StoreConnection {
  Fd socket;
  std::string nonce;
  Clock::time_point heard = Clock::now();  // time of its last message; of an unproved connection: of its start
  bool proved = false;
  std::string in{}, out{};
};

struct StoreServer::Impl {
  explicit Impl(Options o)
      : options(std::move(o)), state([this](uint64_t client, const Frame& frame) { send(client, frame); }) {
    listening = options.listening >= 0 ? adopt(options.listening) : listen_on(options.host, options.port);
    RT_CHECK_AS(CommError, events && stop, "cannot create an epoll instance: ", reason(errno));
    watch(EPOLL_CTL_ADD, listening, kListeningEvent, EPOLLIN);
    watch(EPOLL_CTL_ADD, stop, kStopEvent, EPOLLIN);
    thread = start_thread("the store's server", [this] {
      try {
        run();
      } catch (const std::exception& e) {
        log_warn("the store's server has stopped: ", e.what());
        connections.clear();
      }
    });
  }

  void watch(int what, const Fd& socket, uint64_t id, uint32_t for_what) {
    epoll_event event{};
    event.events = for_what;
    event.data.u64 = id;
    ::epoll_ctl(events.get(), what, socket.get(), &event);
  }

  void run() {
    const auto tick =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::min(options.heartbeat, options.patience) / 8);
    Clock::time_point last = Clock::now(), leave_by = Clock::time_point::max();
    while (clients() > 0 || leave_by == Clock::time_point::max()) {
      epoll_event ready[kEvents];
      const int n = ::epoll_wait(events.get(), ready, kEvents, int(std::clamp<int64_t>(tick.count(), 1, 500)));
      for (int i = 0; i < n; ++i) {
        const uint64_t id = ready[i].data.u64;
        if (id == kListeningEvent) accept_all();
        else if (id == kStopEvent) leave_by = begin_to_stop();
        else serve(id, ready[i].events);
      }
      const Clock::time_point now = Clock::now();
      if (now - last > options.heartbeat / 2)  // this process itself was stopped
        for (auto& [id, c] : connections) c.heard = now;
      last = now;
      if (n < kEvents) drop_silent(now);
      if (now > leave_by) break;
    }
    for (auto& [id, c] : connections)
      if (c.proved) send(id, {Frame::Type::bye});
  }

  size_t clients() const {
    return size_t(std::ranges::count_if(connections, [](const auto& c) { return c.second.proved; }));
  }

  Clock::time_point begin_to_stop() {
    ::epoll_ctl(events.get(), EPOLL_CTL_DEL, stop.get(), nullptr);
    ::epoll_ctl(events.get(), EPOLL_CTL_DEL, listening.get(), nullptr);
    return Deadline(Seconds(patience)).at();
  }

  void accept_all() {
    for (;;) {
      Fd s(::accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!s) {
        // Connections that wait to be accepted would be reported without end. Connected clients are served between two
        // attempts.
        if (is_lack_of_descriptors(errno)) {
          if (!std::exchange(warned, true)) log_warn("the store cannot accept a connection: ", reason(errno));
          std::this_thread::sleep_for(Seconds(0.01));
        }
        return;
      }
      if (connections.size() - clients() >= kStrangers) continue;
      const uint64_t id = next_client++;
      watch(EPOLL_CTL_ADD, s, id, EPOLLIN);
      StoreConnection& c = connections.emplace(id, StoreConnection{std::move(s), random_bytes(kNonce)}).first->second;
      send(id, {Frame::Type::challenge, 0, kProtocol, {c.nonce}});
    }
  }

  void serve(uint64_t id, uint32_t what) {
    const auto it = connections.find(id);
    if (it == connections.end()) return;
    StoreConnection& c = it->second;
    if (what & EPOLLOUT) flush(id, c);
    if (!(what & ~uint32_t(EPOLLOUT))) return;
    char bytes[64 << 10];
    const ssize_t got = ::recv(c.socket.get(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return drop(id, "died");
    c.in.append(bytes, size_t(got));
    if (c.proved) c.heard = Clock::now();
    for (size_t used = 0;;) {
      const Parsed parsed = parse_frame(std::string_view(c.in).substr(used), c.proved ? kMaxFrame : kMaxGreeting);
      if (parsed.error) return drop(id, concat("sent an invalid frame: ", parsed.error));
      if (!parsed.frame) return void(c.in.erase(0, used));
      used += parsed.used;
      if (!answer(id, c, *parsed.frame)) return;
    }
  }

  // False: the connection is closed.
  bool answer(uint64_t id, StoreConnection& c, const Frame& frame) {
    if (!c.proved) return greet(id, c, frame);
    if (frame.type == Frame::Type::bye) {
      send(id, {Frame::Type::bye});
      drop(id, "");
      return false;
    }
    state.handle(id, frame);
    return true;
  }

  bool greet(uint64_t id, StoreConnection& c, const Frame& frame) {
    const auto refuse = [&](const std::string& why) {
      send(id, {Frame::Type::refuse, 0, 0, {why}});
      drop(id, "");
      return false;
    };
    if (frame.type != Frame::Type::proof || frame.fields[0].size() != kNonce) {
      drop(id, "");
      return false;
    }
    if (frame.number != kProtocol)
      return refuse(concat("it uses version ", kProtocol, " of the protocol, this process ", frame.number,
                           "; run the same build everywhere"));
    if (!same(frame.fields[1], prove(options.token, Side::client, c.nonce, frame.fields[0])))
      return refuse("the token of this process is not the job's; set the same RINGTAPE_TOKEN on all processes");
    c.proved = true;
    const std::string proof = prove(options.token, Side::store, c.nonce, frame.fields[0]);
    send(id, {Frame::Type::welcome, 0, int64_t(options.heartbeat.count() * 1e3), {proof, options.name}});
    return true;
  }

  void send(uint64_t id, const Frame& frame) {
    const auto it = connections.find(id);
    if (it == connections.end()) return;
    StoreConnection& c = it->second;
    const bool idle = c.out.empty();
    c.out += encode(frame);
    if (idle) flush(id, c);
    if (c.out.size() > kBacklog) ::shutdown(c.socket.get(), SHUT_RDWR);  // epoll reports it
  }

  void flush(uint64_t id, StoreConnection& c) {
    const ssize_t sent = ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
    if (sent > 0) c.out.erase(0, size_t(sent));
    watch(EPOLL_CTL_MOD, c.socket, id, c.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }

  void drop_silent(Clock::time_point now) {
    std::vector<uint64_t> silent;
    for (const auto& [id, c] : connections)
      if (now - c.heard > (c.proved ? options.heartbeat : options.patience)) silent.push_back(id);
    for (const uint64_t id : silent)
      drop(id, concat("has been silent for ", options.heartbeat.count(),
                      " s: it is stopped, or its machine or its network is gone"));
  }

  // Before its connection closes, the client reads the messages that its own end caused.
  void drop(uint64_t id, const std::string& what) {
    const auto it = connections.find(id);
    if (it == connections.end()) return;
    if (it->second.proved) state.left(id, what);
    connections.erase(id);
  }

  const Options options;
  StoreState state;
  Fd listening;
  const Fd events{::epoll_create1(EPOLL_CLOEXEC)}, stop{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unordered_map<uint64_t, StoreConnection> connections;
  uint64_t next_client = kFirstClientEvent;
  bool warned = false;
  std::atomic<double> patience{options.heartbeat.count()};  // s, for clients that have not left
  std::thread thread;                                       // last, because it uses the other members
};

StoreServer::StoreServer(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

StoreServer::~StoreServer() {
  ::eventfd_write(impl_->stop.get(), 1);
  if (impl_->thread.joinable()) impl_->thread.join();
}

void StoreServer::stop_within(Seconds patience) {
  impl_->patience = patience.count();
  ::eventfd_write(impl_->stop.get(), 1);
  impl_->thread.join();
}

int StoreServer::port() const { return port_of(impl_->listening); }

}  // namespace ringtape::comm
