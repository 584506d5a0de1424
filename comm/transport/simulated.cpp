#include "comm/transport/simulated.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <queue>
#include <unordered_map>
#include <utility>

#include "core/fiber.h"

namespace ringtape::comm {

namespace {

class Simulated;

// One side of a message. It is in a deque, so that its address is stable until finish() removes it.
struct MessageSide {
  Transfer transfer;
  Transport::Ticket ticket;
  Simulated* owner;
  int64_t depth;                  // messages before it in the longest chain; once it is matched, including it
  bool met = false;               // matched with the other side
  double arrived = 0;             // time
  MessageSide* behind = nullptr;  // the next one that waits for the same pair
};
struct WaitingSides {
  MessageSide *first, *last;
};

struct Turn {
  double time;
  int rank;
  bool operator>(const Turn& other) const { return time != other.time ? time > other.time : rank > other.rank; }
};

// The shared state of the ranks. The rank with the earliest time always runs, so messages are matched in the order of
// time.
class Simulation {
 public:
  Simulation(int ranks, const Topology& topology, const std::function<void(Transport&)>& f, Payload payload);
  SimulationResult run();

  void wait_for_turn(int rank);  // until no other rank has an earlier time
  void block(int rank);          // until wake(rank)
  void wake(int rank) { turns_.push({times[size_t(rank)], rank}); }
  void post(MessageSide& side);  // at the time of its rank

  const int ranks;
  const Topology topology;
  const Payload payload;
  std::vector<double> times;  // of each rank, s

 private:
  static void entry();
  void work(int rank);
  void meet(MessageSide& send, MessageSide& recv);
  void resume(int rank);
  std::string stuck() const;

  const std::function<void(Transport&)>& f_;
  const std::shared_ptr<Store> store_ = memory_store();
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  Fiber host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<Simulated>> transports_;
  std::vector<bool> done_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  // Sides that are not matched, by sender and receiver; those of a pair are either all sends or all recvs. Pairs
  // without any have no entry, because there may be millions of pairs.
  std::unordered_map<uint64_t, WaitingSides> waiting_;
  std::vector<double> free_at_;  // by port
  std::vector<LinkLoad> loads_;
  SimulationResult result_;
  std::exception_ptr first_error_;
};

thread_local Simulation* current = nullptr;
thread_local int running = -1;

class Simulated : public Transport {
 public:
  Simulated(Context context, Simulation& simulation) : Transport(std::move(context)), simulation_(simulation) {}
  std::string_view name() const override { return "simulated"; }
  std::unique_ptr<Transport> open(Context) const override {
    detail::fail<CommError>({"a simulated network has one group"});
  }

  Ticket start(std::span<const Transfer> transfers) override {
    simulation_.wait_for_turn(rank());
    context_.failure->check();  // the buffers of a failed rank no longer exist
    for (const Transfer& t : transfers) {
      RT_CHECK_AS(CommError, t.peer >= 0 && t.peer < size(), "rank ", rank(), ": there is no rank ", t.peer,
                  " in a group of ", size());
      sides_.push_back({t, ticket_, this, depth_});
      simulation_.post(sides_.back());
    }
    return ticket_++;
  }

  void finish(Ticket ticket) override {
    for (; !sides_.empty() && sides_.front().ticket <= ticket; sides_.pop_front()) {
      MessageSide& side = sides_.front();
      if (!side.met) {
        context_.failure->check();
        waiting_on_ = side.transfer.peer;
        simulation_.block(rank());
        context_.failure->check();
        waiting_on_ = -1;
      }
      double& time = simulation_.times[size_t(rank())];
      time = std::max(time, side.arrived);
      depth_ = std::max(depth_, side.depth);
    }
  }

  void combine(void* y, std::span<const void* const> sources, int64_t count, double factor) override {
    if (carries()) Transport::combine(y, sources, count, factor);
    simulation_.times[size_t(rank())] +=
        simulation_.topology.gamma * double(count) * double(size_of(operation_.dtype)) * double(sources.size() - 1);
  }
  void copy(void* y, const void* x, size_t bytes) override {
    if (carries()) Transport::copy(y, x, bytes);
  }
  void* scratch(size_t bytes) override { return carries() ? Transport::scratch(bytes) : nowhere(); }
  std::shared_ptr<void> allocate(size_t bytes) override {
    return carries() ? Transport::allocate(bytes) : std::shared_ptr<void>(nowhere(), [](void*) {});
  }

  const MessageSide& next() const { return sides_.front(); }
  int64_t depth() const { return depth_; }
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  void opened() override { fingerprint_ = operation_.fingerprint(); }
  bool carries() const { return simulation_.payload == Payload::carried; }
  static void* nowhere() { return reinterpret_cast<void*>(uintptr_t{1} << 40); }

  Simulation& simulation_;
  std::deque<MessageSide> sides_;
  Ticket ticket_ = 0;
  int64_t depth_ = 0;
  uint64_t fingerprint_ = operation_.fingerprint();
};

Simulation::Simulation(int ranks, const Topology& topology, const std::function<void(Transport&)>& f, Payload payload)
    : ranks(ranks), topology(topology), payload(payload), times(size_t(ranks)), f_(f), done_(size_t(ranks)),
      free_at_(topology.ports(ranks)), loads_(free_at_.size()) {
  const int island = topology.island < ranks && ranks % topology.island == 0 ? topology.island : 1;
  for (int r = 0; r < ranks; ++r) {
    transports_.push_back(
        std::make_unique<Simulated>(Context{r, ranks, store_, failure_, Seconds(600), island}, *this));
    fibers_.push_back(std::make_unique<Fiber>(entry));
  }
}

void Simulation::entry() {
  Fiber::arrived();
  Simulation& s = *current;
  const int rank = running;
  s.work(rank);
  s.done_[size_t(rank)] = true;
  Fiber::leave(*s.fibers_[size_t(rank)], s.host_);
}

void Simulation::work(int rank) {
  try {
    f_(*transports_[size_t(rank)]);
  } catch (const std::exception& e) {
    if (!first_error_) first_error_ = std::current_exception();
    failure_->raise(concat("rank ", rank, ": ", e.what()));
  }
}

void Simulation::resume(int rank) {
  running = rank;
  Fiber::switch_to(host_, *fibers_[size_t(rank)]);
}

void Simulation::block(int rank) { Fiber::switch_to(*fibers_[size_t(rank)], host_); }

void Simulation::wait_for_turn(int rank) {
  const Turn mine{times[size_t(rank)], rank};
  if (turns_.empty() || turns_.top() > mine) return;
  turns_.push(mine);
  block(rank);
}

void Simulation::post(MessageSide& side) {
  const bool sends = side.transfer.way == Transfer::Way::send;
  const int from = sends ? side.owner->rank() : side.transfer.peer,
            to = sends ? side.transfer.peer : side.owner->rank();
  const auto [place, alone] = waiting_.try_emplace(uint64_t(from) << 32 | uint64_t(to), WaitingSides{&side, &side});
  if (alone) return;
  WaitingSides& others = place->second;
  if (others.first->transfer.way == side.transfer.way) {
    others.last = others.last->behind = &side;
    return;
  }
  MessageSide& other = *others.first;
  others.first = other.behind;
  if (!others.first) waiting_.erase(place);
  sends ? meet(side, other) : meet(other, side);
}

void Simulation::meet(MessageSide& send, MessageSide& recv) {
  Simulated &from = *send.owner, &to = *recv.owner;
  const size_t bytes = send.transfer.bytes;
  if (from.fingerprint() != to.fingerprint() || from.operation().sequence != to.operation().sequence ||
      bytes != recv.transfer.bytes)
    mismatch(to, from.rank(), from.operation());
  if (payload == Payload::carried && bytes > 0) std::memcpy(recv.transfer.data, send.transfer.data, bytes);
  double arrived = times[size_t(running)];
  if (&from != &to) {
    const Topology::Path path = topology.path(from.rank(), to.rank(), ranks);
    const double begin = std::max({arrived, free_at_[path.out], free_at_[path.in]}),
                 busy = double(bytes) * path.cost.beta;
    arrived = begin + path.cost.alpha + busy;
    for (const size_t port : {path.out, path.in}) {
      free_at_[port] = begin + busy;
      loads_[port].messages += 1;
      loads_[port].bytes += int64_t(bytes);
      loads_[port].busy += busy;
    }
    ++result_.messages;
    result_.bytes += int64_t(bytes);
  }
  const int64_t depth = std::max(send.depth, recv.depth) + 1;
  for (MessageSide* side : {&send, &recv}) {
    side->met = true;
    side->arrived = arrived;
    side->depth = depth;
    const int rank = side->owner->rank();
    if (rank == running || side->owner->waiting_on() < 0 || &side->owner->next() != side) continue;
    times[size_t(rank)] = std::max(times[size_t(rank)], arrived);
    wake(rank);
  }
}

// Follows the waits from the first waiting rank, until a rank comes again.
std::string Simulation::stuck() const {
  constexpr int kMax = 12;
  int rank = int(std::find(done_.begin(), done_.end(), false) - done_.begin());
  const int waiting = int(std::count(done_.begin(), done_.end(), false));
  std::string out = concat("deadlock: ", waiting, waiting == 1 ? " rank waits" : " ranks wait",
                           " for messages that nobody will send or receive: ");
  std::vector<bool> seen(size_t(ranks), false);
  for (int listed = 0;; ++listed) {
    if (listed == kMax) return out + "; further ranks are left out";
    seen[size_t(rank)] = true;
    const Transport& transport = *transports_[size_t(rank)];
    const Transfer& t = transports_[size_t(rank)]->next().transfer;
    out += concat(listed ? "; " : "", "rank ", rank, " waits for rank ", t.peer, " to ",
                  t.way == Transfer::Way::send ? "receive " : "send ", with_commas(int64_t(t.bytes)), " bytes in ",
                  transport.operation());
    rank = t.peer;
    if (done_[size_t(rank)]) return concat(out, "; rank ", rank, " is done");
    if (seen[size_t(rank)]) return out;
  }
}

SimulationResult Simulation::run() {
  Simulation* const outer = std::exchange(current, this);
  for (int r = 0; r < ranks; ++r) wake(r);
  while (!turns_.empty()) {
    const int rank = turns_.top().rank;
    turns_.pop();
    resume(rank);
  }
  const auto waits = std::find(done_.begin(), done_.end(), false);
  if (waits != done_.end()) failure_->raise(stuck());
  for (int r = 0; r < ranks; ++r)
    if (!done_[size_t(r)]) resume(r);  // it notices the failure and ends
  current = outer;
  if (first_error_) std::rethrow_exception(first_error_);
  for (int r = 0; r < ranks; ++r) {
    result_.seconds = std::max(result_.seconds, times[size_t(r)]);
    result_.steps = std::max(result_.steps, transports_[size_t(r)]->depth());
  }
  for (size_t port = 0; port < loads_.size(); ++port)
    if (loads_[port].messages > 0) {
      loads_[port].name = topology.port_name(port, ranks);
      result_.links.push_back(std::move(loads_[port]));
    }
  return std::move(result_);
}

}  // namespace

SimulationResult simulate(int ranks, const Topology& topology, const std::function<void(Transport&)>& f,
                          Payload payload) {
  RT_CHECK_AS(UsageError, ranks >= 1 && topology.island >= 1 && topology.rails >= 1,
              "a simulation needs ranks, islands of ranks and rails");
  return Simulation(ranks, topology, f, payload).run();
}

}  // namespace ringtape::comm
