#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "comm/transport/header.h"
#include "comm/transport/tcp_mesh.h"
#include "comm/transport/transports.h"
#include "core/env.h"

namespace ringtape::comm {

namespace {

constexpr size_t kStripe = 256 << 10;  // minimum number of bytes for each socket that a message uses
constexpr int kVectors = 16;           // maximum number of pieces per system call
constexpr int kNapMs = 10;
constexpr size_t kMuch = 32 << 10;   // for this many bytes nobody spins: poll() reports when they have come,
constexpr size_t kWake = 256 << 10;  // or this many of them: each wake-up takes the core from a computing thread
constexpr short kBoth = POLLIN | POLLOUT;

// The part of a message on one socket: its header (only on the first socket), then bytes.
struct Piece {
  MessageHeader header;
  char* data;
  size_t bytes;
  uint64_t ticket;
  size_t whole;     // bytes of the message
  size_t head;      // bytes of the header: all or none
  size_t done = 0;  // of head + bytes
  size_t rest() const { return head + bytes - done; }
};

// One socket to one rank, with the pieces to send and to receive, in order.
struct Lane {
  explicit Lane(Fd fd) : fd(std::move(fd)) {}
  Fd fd;
  std::deque<Piece> out, in;
  std::string out_error, in_error;  // why sending or receiving ended
  short ready = kBoth;              // possible directions: the result of poll(), if it was called
  int wake = 1;                     // bytes for which poll() waits
};

class Tcp : public Transport {
 public:
  explicit Tcp(Context context) : Transport(std::move(context)) {
    const Deadline deadline(context_.timeout);
    for (std::vector<Fd>& fds : connect_mesh(context_, env::tcp_sockets(), deadline)) {
      std::vector<Lane>& lanes = peers_.emplace_back();
      for (Fd& fd : fds) lanes.emplace_back(std::move(fd));
    }
  }
  std::string_view name() const override { return "tcp"; }
  std::unique_ptr<Transport> open(Context context) const override { return tcp_transport(std::move(context)); }

  Ticket start(std::span<const Transfer> transfers) override {
    const Ticket ticket = first_ + pending_.size();
    pending_.push_back(0);
    for (const Transfer& t : transfers) {
      RT_CHECK(t.peer != rank(), "a rank sends nothing to itself");
      queue(t, ticket);
    }
    for (const Transfer& t : transfers)
      if (t.way == Transfer::Way::send)
        for (Lane& lane : peers_[size_t(t.peer)]) send_some(lane);
    return ticket;
  }

  void finish(Ticket ticket) override {
    if (progress(ticket)) return;
    if (much_to_come()) doze();
    for (Wait wait(*this, -1); !progress(ticket); wait.pause())
      waiting_on_.store(waited_for(ticket), std::memory_order_relaxed);
  }

 protected:
  void doze() override {
    polled_.clear();
    asked_.clear();
    for (auto& lanes : peers_)
      for (Lane& lane : lanes) {
        const bool in = !lane.in.empty() && lane.in_error.empty(), out = !lane.out.empty() && lane.out_error.empty();
        if (!in && !out) continue;
        if (in) wait_for_much(lane);
        polled_.push_back({lane.fd.get(), short((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0});
        asked_.push_back(&lane);
      }
    ::poll(polled_.data(), polled_.size(), kNapMs);
    for (size_t i = 0; i < polled_.size(); ++i)
      asked_[i]->ready = polled_[i].revents & (POLLERR | POLLHUP) ? kBoth : polled_[i].revents;
  }

  std::string lost(int) override {
    for (size_t r = 0; r < peers_.size(); ++r)
      for (const Lane& lane : peers_[r]) {
        const std::string* error = !lane.in.empty() && !lane.in_error.empty() ? &lane.in_error : nullptr;
        if (!error && !lane.out.empty() && !lane.out_error.empty()) error = &lane.out_error;
        if (error) return concat("rank ", r, " closed the connection (", *error, ")");
      }
    return "";
  }

 private:
  void queue(const Transfer& t, Ticket ticket) {
    std::vector<Lane>& lanes = peers_[size_t(t.peer)];
    const int n = int(std::clamp<size_t>(t.bytes / kStripe, 1, lanes.size()));
    const bool sends = t.way == Transfer::Way::send;
    for (int i = 0; i < n; ++i) {
      const size_t begin = t.bytes / size_t(n) * size_t(i),
                   end = i + 1 == n ? t.bytes : t.bytes / size_t(n) * size_t(i + 1);
      Piece piece{{},      static_cast<char*>(t.data) + begin, end - begin, ticket,
                  t.bytes, i == 0 ? sizeof(MessageHeader) : 0};
      if (sends) {
        piece.header.operation = operation_;
        piece.header.bytes = t.bytes;
      }
      (sends ? lanes[size_t(i)].out : lanes[size_t(i)].in).push_back(piece);
      ++pending_.back();
    }
  }

  static void wait_for_much(Lane& lane) {
    const size_t rest = lane.in.front().rest();
    const int wake = rest < kMuch ? 1 : int(std::min(rest, kWake));
    if (wake != std::exchange(lane.wake, wake))
      ::setsockopt(lane.fd.get(), SOL_SOCKET, SO_RCVLOWAT, &wake, sizeof wake);
  }

  bool much_to_come() const {
    for (const auto& lanes : peers_)
      for (const Lane& lane : lanes)
        if (!lane.in.empty() && lane.in.front().rest() >= kMuch) return true;
    return false;
  }

  // Moves as much data as possible. True if everything up to the ticket is done.
  bool progress(Ticket ticket) {
    for (size_t r = 0; r < peers_.size(); ++r)
      for (Lane& lane : peers_[r]) {
        const short ready = std::exchange(lane.ready, kBoth);
        if (!lane.out.empty() && (ready & POLLOUT)) send_some(lane);
        if (!lane.in.empty() && (ready & POLLIN)) receive_some(lane, int(r));
      }
    for (; !pending_.empty() && pending_.front() == 0; pending_.pop_front()) ++first_;
    return first_ > ticket;
  }

  int waited_for(Ticket ticket) const {
    for (size_t r = 0; r < peers_.size(); ++r)
      for (const Lane& lane : peers_[r])
        for (const std::deque<Piece>* pieces : {&lane.in, &lane.out})
          if (!pieces->empty() && pieces->front().ticket <= ticket) return int(r);
    return -1;
  }

  // The memory of the first pieces, for one system call.
  struct Vectors {
    explicit Vectors(std::deque<Piece>& pieces) {
      for (Piece& p : pieces) {
        if (message.msg_iovlen + 2 > kVectors) break;
        if (p.done < p.head) add(reinterpret_cast<char*>(&p.header) + p.done, p.head - p.done);
        const size_t moved = p.done - std::min(p.done, p.head);
        if (moved < p.bytes) add(p.data + moved, p.bytes - moved);
      }
      message.msg_iov = parts;
    }
    void add(char* data, size_t count) {
      parts[message.msg_iovlen++] = {data, count};
      bytes += count;
    }
    iovec parts[kVectors];
    msghdr message{};
    size_t bytes = 0;
  };

  void send_some(Lane& lane) {
    while (!lane.out.empty() && lane.out_error.empty()) {
      const Vectors all(lane.out);
      const ssize_t n = ::sendmsg(lane.fd.get(), &all.message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) {
        if (errno != EAGAIN && errno != EINTR) lane.out_error = std::strerror(errno);
        return;
      }
      advance(lane.out, size_t(n), [](Piece&) {});
      if (size_t(n) < all.bytes) return;  // no more has room
    }
  }

  void receive_some(Lane& lane, int peer) {
    while (!lane.in.empty() && lane.in_error.empty()) {
      Vectors all(lane.in);
      const ssize_t n = ::recvmsg(lane.fd.get(), &all.message, MSG_DONTWAIT);
      if (n <= 0) {
        if (n == 0) lane.in_error = "end of stream";
        else if (errno != EAGAIN && errno != EINTR) lane.in_error = std::strerror(errno);
        return;
      }
      advance(lane.in, size_t(n), [&](Piece& p) { check_header(*this, peer, p.header, p.whole); });
      if (size_t(n) < all.bytes) return;  // no more has come
    }
  }

  // `bytes` bytes of the first pieces have been transferred.
  template <class F> void advance(std::deque<Piece>& pieces, size_t bytes, const F& on_header) {
    while (!pieces.empty()) {
      Piece& p = pieces.front();
      const size_t n = std::min(bytes, p.rest());
      if (p.done < p.head && p.done + n >= p.head) on_header(p);
      p.done += n;
      bytes -= n;
      if (p.rest() > 0) return;
      --pending_[size_t(p.ticket - first_)];
      pieces.pop_front();
    }
  }

  std::vector<std::vector<Lane>> peers_;
  std::deque<size_t> pending_;  // number of unfinished pieces of each ticket from first_ on
  Ticket first_ = 0;
  std::vector<pollfd> polled_;
  std::vector<Lane*> asked_;  // the lane of each of them
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(Context context) { return std::make_unique<Tcp>(std::move(context)); }

}  // namespace ringtape::comm
