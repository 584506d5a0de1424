#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "comm/store/frame.h"
#include "comm/store/socket.h"
#include "comm/store/tcp_store.h"
#include "comm/store/token.h"
#include "core/limits.h"

namespace ringtape::comm {

namespace {

using Type = Frame::Type;

// Waits until the socket can be read (POLLIN) or written (POLLOUT), or is closed; false: not by the deadline.
bool ready(const Fd& socket, short what, Deadline deadline) {
  pollfd p{socket.get(), what, 0};
  int n = 0;
  while ((n = ::poll(&p, 1, deadline.left_ms())) < 0 && errno == EINTR) {
  }
  return n > 0;
}

// False: the connection is lost, or the deadline has passed.
bool send_all(const Fd& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(size_t(sent));
    else if (errno != EINTR && (errno != EAGAIN || !ready(socket, POLLOUT, deadline))) return false;
  }
  return true;
}

// Received bytes that are not yet parsed as frames.
class Inbox {
 public:
  // False: the connection is gone.
  bool receive(const Fd& socket) {
    char bytes[64 << 10];
    const ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, 0);
    if (got > 0) bytes_.append(bytes, size_t(got));
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }
  std::optional<Frame> next() {
    Parsed parsed = parse_frame(bytes_);
    RT_CHECK_AS(CommError, !parsed.error, "it sent an invalid frame: ", parsed.error);
    bytes_.erase(0, parsed.used);
    return std::move(parsed.frame);
  }

 private:
  std::string bytes_;
};

Frame next_frame(const Fd& socket, Inbox& inbox, Deadline deadline) {
  for (;;) {
    if (auto frame = inbox.next()) return std::move(*frame);
    RT_CHECK_AS(CommError, ready(socket, POLLIN, deadline), "the process that listens there is not a ringtape store");
    RT_CHECK_AS(CommError, inbox.receive(socket), "it closed the connection");
  }
}

class TcpStore : public Store {
 public:
  TcpStore(const StoreAddress& address, Deadline deadline, Seconds timeout)
      : socket_(connect_to(address.host, address.port, deadline)),
        name_(concat("the store at ", address.host, ":", address.port)), timeout_(timeout) {
    greet(address.token, deadline);
    reader_ = start_thread("the store's reader", [this] { read(); });
  }
  ~TcpStore() override {
    try {
      call({Type::bye}, Deadline(Seconds(2)), "goodbye");
    } catch (const CommError&) {  // already closed
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
    reader_.join();
  }

  void set(const std::string& key, const std::string& value) override { ask({Type::set, 0, 0, {key, value}}); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return first_field(ask({Type::set_once, 0, 0, {key, value}}));
  }
  std::optional<std::string> get(const std::string& key) override {
    Frame reply = ask({Type::get, 0, 0, {key}});
    return reply.number == 0 ? std::nullopt : std::optional(first_field(std::move(reply)));
  }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    RT_CHECK_AS(CommError, !keys.empty() && keys.size() <= kMaxFields, "store: one can wait for 1 to ", kMaxFields,
                " keys, not for ", keys.size());
    auto reply = call({Type::wait, 0, 0, {keys.begin(), keys.end()}}, deadline, keys.front());
    if (!reply) return std::nullopt;
    RT_CHECK_AS(CommError, reply->fields.size() == 2, name_, " gave a wrong answer about '", keys.front(), "'");
    return Entry{std::move(reply->fields[0]), std::move(reply->fields[1])};
  }
  int64_t add(const std::string& key, int64_t amount) override { return ask({Type::add, 0, amount, {key}}).number; }
  void erase(const std::string& key) override { ask({Type::erase, 0, 0, {key}}); }
  void will(const std::string& key, const std::string& who) override { ask({Type::will, 0, 0, {key, who}}); }
  std::string address() const override { return own_address(socket_); }

 private:
  // Both sides prove the token, so a false store at this address learns nothing.
  void greet(const std::string& token, Deadline deadline) {
    const Frame challenge = next_frame(socket_, inbox_, deadline);
    const std::string nonce = random_bytes(kNonce);
    RT_CHECK_AS(CommError, challenge.type == Type::challenge && challenge.fields[0].size() == kNonce,
                "the process that listens there is not a ringtape store");
    const std::string proof = prove(token, Side::client, challenge.fields[0], nonce);
    RT_CHECK_AS(CommError, send_all(socket_, encode({Type::proof, 0, kProtocol, {nonce, proof}}), deadline),
                "it closed the connection");
    const Frame answer = next_frame(socket_, inbox_, deadline);
    RT_CHECK_AS(comm::TokenRefused, answer.type != Type::refuse, name_, " rejected this process: ", answer.fields[0]);
    const std::string expected = prove(token, Side::store, challenge.fields[0], nonce);
    RT_CHECK_AS(comm::TokenRefused, answer.type == Type::welcome && same(answer.fields[0], expected), name_,
                " does not have the job's token; another program listens there");
    heartbeat_ = Seconds(std::max(double(answer.number), 1.0) / 1e3);
    host_ = answer.fields[1];
  }

  static std::string first_field(Frame reply) { return reply.fields.empty() ? "" : std::move(reply.fields[0]); }

  Frame ask(Frame request) {
    const std::string key = request.fields[0];
    auto reply = call(std::move(request), Deadline(timeout_), key);
    RT_CHECK_AS(CommError, reply, name_, " has not answered about '", key, "' within ", timeout_.count(), " s");
    return std::move(*reply);
  }

  // The reply; nullopt if there is none by the deadline.
  std::optional<Frame> call(Frame request, Deadline deadline, const std::string& key) {
    std::unique_lock lock(mutex_);
    if (!lost_.empty()) throw_lost(key);
    const uint32_t id = request.request = ++last_request_;
    const bool is_wait = request.type == Type::wait;
    const std::string bytes = encode(request);
    replies_[id];
    lock.unlock();
    send(bytes, deadline);
    lock.lock();
    const bool answered = answered_.wait_until(lock, deadline.at(), [&] { return replies_[id] || !lost_.empty(); });
    const auto reply = std::move(replies_.extract(id).mapped());
    if (!reply && !answered) {
      lock.unlock();
      if (is_wait) send(encode({Type::cancel, 0, id}), Deadline(Seconds(1)));
      return std::nullopt;
    }
    if (!reply) throw_lost(key);
    RT_CHECK_AS(CommError, reply->type != Type::error, reply->fields[0]);
    return reply;
  }

  [[noreturn]] void throw_lost(const std::string& key) const {
    RT_CHECK_AS(comm::StoreClosed, !closed_, lost_, " (asked for '", key, "')");
    throw CommError(lost_);
  }

  // A partly sent message cannot be taken back: the connection is then useless, and the reader notices this after it
  // has read the remaining data. A caller with a short deadline does not end the connection.
  void send(const std::string& bytes, Deadline deadline) {
    const std::lock_guard lock(sending_);
    if (!send_all(socket_, bytes, Deadline(std::max(deadline.left(), heartbeat_))))
      ::shutdown(socket_.get(), SHUT_RDWR);
  }

  void lose(const std::string& why, bool closed) {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) {
      lost_ = why;
      closed_ = closed;
    }
    answered_.notify_all();
    ::shutdown(socket_.get(), SHUT_RDWR);
  }

  void read() {
    try {
      Deadline next_beat(heartbeat_ / 4);
      std::optional<Clock::time_point> unanswered;  // time of the oldest unanswered beat
      Seconds stopped{0};                           // this process, before it last looked too late
      for (Clock::time_point looked = Clock::now(), woken{};;) {
        const bool any = ready(socket_, POLLIN, next_beat);
        const Clock::time_point now = Clock::now(), before = std::exchange(looked, now);
        if (now - before > heartbeat_) woken = now, stopped = now - before;
        if (any) {
          const bool open = inbox_.receive(socket_);
          unanswered.reset();
          while (auto frame = inbox_.next())
            if (!deliver(std::move(*frame))) return;
          if (!open && now - woken < heartbeat_) return lose(too_late(stopped), false);
          if (!open) return lose(concat(host_, " died; it hosted ", name_), false);
        }
        if (!next_beat.passed()) continue;
        if (unanswered && Clock::now() - *unanswered > heartbeat_)
          return lose(concat(host_, " has been silent for ", heartbeat_.count(),
                             " s: it is stopped, or its machine or its network is gone; it hosted ", name_),
                      false);
        if (!unanswered) unanswered = Clock::now();
        send(encode({Type::beat}), Deadline(heartbeat_));
        next_beat = Deadline(heartbeat_ / 4);
      }
    } catch (const std::exception& e) {
      lose(concat(name_, ": ", e.what()), false);
    }
  }

  std::string too_late(Seconds stopped) const {
    return concat("this process, or its machine, was stopped for ", std::lround(stopped.count()), " s, but ", name_,
                  " counts who is silent for ", heartbeat_.count(), " s as gone");
  }

  // False: the store says goodbye.
  bool deliver(Frame frame) {
    if (frame.type == Type::bye) return lose(concat(host_, " has finished and closed ", name_), true), false;
    const std::lock_guard lock(mutex_);
    if (const auto it = replies_.find(frame.request);
        it != replies_.end() && (frame.type == Type::reply || frame.type == Type::error)) {
      it->second = std::move(frame);
      answered_.notify_all();
    }
    return true;
  }

  const Fd socket_;
  const std::string name_;
  const Seconds timeout_;
  std::string host_;
  Seconds heartbeat_{10};
  Inbox inbox_;  // used only by the reader after the greeting
  std::mutex sending_;
  std::mutex mutex_;  // protects the members below
  std::condition_variable answered_;
  std::unordered_map<uint32_t, std::optional<Frame>> replies_;
  uint32_t last_request_ = 0;
  std::string lost_;  // why no more answers will come
  bool closed_ = false;
  std::thread reader_;
};

}  // namespace

std::shared_ptr<Store> tcp_store(const StoreAddress& address, Deadline deadline, Seconds timeout,
                                 const std::function<void(const std::string& why)>& waiting) {
  for (;;) {
    try {
      return std::make_shared<TcpStore>(address, Deadline(std::min(deadline.left(), Seconds(5))), timeout);
    } catch (const TokenRefused&) {
      throw;
    } catch (const CommError& e) {
      RT_CHECK_AS(CommError, deadline.left() > Seconds(0.05), "no connection to the store at ", address.host, ":",
                  address.port, ": ", e.what());
      if (waiting) waiting(e.what());
    }
    std::this_thread::sleep_for(Seconds(0.05));
  }
}

}  // namespace ringtape::comm
