#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <deque>
#include <list>
#include <sstream>

#include "comm/transport/host.h"
#include "comm/transport/shm_arena.h"
#include "comm/transport/shm_board.h"
#include "comm/transport/transports.h"
#include "core/runtime.h"

namespace ringtape::comm {

namespace {

constexpr size_t kStage = 64 << 10;       // other buffers up to this size are copied to be shared
constexpr size_t kByReference = 4 << 10;  // messages in shared memory from this size on are read in place
constexpr auto kNap = std::chrono::milliseconds(5);

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  const timespec timeout{0, std::chrono::nanoseconds(kNap).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// Another rank, or this one: its memory in this process's address space.
struct Peer {
  std::shared_ptr<PeerArena> shared;  // null: of this process
  std::unique_ptr<PeerProcess> process;
  char* arena;
  Board* board;
  Pipe* pipes;  // for messages to it, by sender
  bool ended() const { return process && process->ended(); }
  bool left() const { return board->left.load() != 0; }
};

// The memory of this rank that the others of a group use, and the memory of the others. It outlives the transport until
// all others have read it for the last time. They say so in this rank's memory, because the memory in which another
// rank says that it has left may be reused by then.
struct SharedPeers {
  int rank;
  std::shared_ptr<SharedArena> arena;
  std::shared_ptr<char> control, stage;
  std::vector<std::shared_ptr<void>> common;  // of allocate_common(), on rank 0
  std::vector<Peer> peers;
  bool over() const {
    for (size_t r = 0; r < peers.size(); ++r)
      if (r != size_t(rank) && peers[size_t(rank)].pipes[r].gone.load() == 0 && !peers[r].ended()) return false;
    return true;
  }
};

// Frees memberships whose groups have ended; keeps this one if its group has not.
void retire(std::unique_ptr<SharedPeers> peers) {
  static std::mutex mutex;
  static std::list<std::unique_ptr<SharedPeers>> kept;
  const std::lock_guard lock(mutex);
  if (peers) kept.push_back(std::move(peers));
  kept.remove_if([](const auto& m) { return m->over(); });
}

class Shm : public Transport {
 public:
  explicit Shm(Context context) : Transport(std::move(context)) {
    retire(nullptr);
    join();
  }
  ~Shm() override {
    self().left.store(1);
    ring_all();
    for (const Peer& p : us_->peers) p.pipes[rank()].gone.store(1);
    retire(std::move(us_));
  }
  std::string_view name() const override { return "shm"; }
  Abilities abilities() const override { return {.shares_memory = true}; }
  std::unique_ptr<Transport> open(Context context) const override { return shm_transport(std::move(context)); }

  Ticket start(std::span<const Transfer> transfers) override {
    for (const Transfer& t : transfers) {
      Lane& lane = lanes_[size_t(t.peer)];
      if (t.way == Transfer::Way::send) lane.sends.push_back({t, ticket_});
      else lane.recvs.push_back({t, ticket_});
    }
    for (const Transfer& t : transfers)
      if (t.way == Transfer::Way::send) push(t.peer);
    return ticket_++;
  }

  void finish(Ticket ticket) override {
    int peer = progress(ticket);
    if (peer < 0) return;
    for (Wait wait(*this, peer); (peer = progress(ticket)) >= 0; wait.pause())
      waiting_on_.store(peer, std::memory_order_relaxed);
    awake();
  }

  std::vector<void*> share(void* data, size_t bytes) override {
    int64_t place = us_->arena->place_of(data, bytes);
    if (place < 0 && bytes <= kStage) {
      if (!us_->stage) us_->stage = us_->arena->allocate(kStage);
      if (bytes > 0) std::memcpy(us_->stage.get(), data, bytes);
      place = us_->arena->place_of(us_->stage.get(), bytes);
    }
    const uint64_t turn = ++turns_;
    Offer& own = self().offers[turn % 2];
    own.place = place;
    own.operation = operation_;
    own.turn.store(turn);
    ring_all();
    std::vector<void*> all(static_cast<size_t>(size()));
    bool reached = true;
    for (int r = 0; r < size(); ++r) {
      const Offer& offer = board(r).offers[turn % 2];
      await(r, [&] { return offer.turn.load() >= turn; });
      if (!same_call(offer.operation, operation_)) mismatch(*this, r, offer.operation);
      reached = reached && offer.place >= 0;
      all[size_t(r)] = us_->peers[size_t(r)].arena + offer.place;
    }
    return reached ? all : std::vector<void*>();
  }

  void fence() override {
    const uint64_t turn = ++fences_;
    self().arrivals.store(turn);
    ring_all();
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();
      await(r, [&] { return board(r).arrivals.load() >= turn; });
    }
  }

  std::shared_ptr<void> allocate(size_t bytes) override {
    std::shared_ptr<char> memory = us_->arena->allocate(bytes);
    cpu::count_memory(int64_t(bytes));
    void* const data = memory.get();
    return {data, [memory = std::move(memory), bytes](void*) { cpu::count_memory(-int64_t(bytes)); }};
  }

  std::shared_ptr<void> allocate_common(size_t bytes) override {
    const size_t own = rank() == 0 ? bytes : 1;
    const std::shared_ptr<void> memory = allocate(own);
    if (rank() == 0) us_->common.push_back(memory);
    void* const place = share(memory.get(), own)[0];
    fence();
    return rank() == 0 ? memory : std::shared_ptr<void>(us_->peers[0].shared, place);
  }

 protected:
  // Two rounds: the bell is read first, so that anything that arrives after that is found before this rank sleeps.
  void doze() override {
    if (!drowsy_) {
      self().asleep.store(1);
      heard_ = self().bell.load();
      drowsy_ = true;
      return;
    }
    futex_wait(self().bell, heard_);
    awake();
  }

  std::string lost(int peer) override { return why_lost(us_->peers, peer); }

 private:
  struct Open {
    Transfer transfer;
    Ticket ticket;
    bool begun = false;          // the header has been transferred
    size_t done = 0;             // bytes that have been transferred
    uint64_t until = 0;          // of a send by reference: done when the receiver has taken this much
    const char* from = nullptr;  // of a recv by reference
  };
  struct Lane {  // to and from one rank
    Lane(Pipe& to, Pipe& from) : in(to), out(from) {}
    std::deque<Open> sends, recvs;
    size_t put = 0;  // sends that are completely in the pipe
    PipeIn in;
    PipeOut out;
  };

  Board& board(int r) const { return *us_->peers[size_t(r)].board; }
  Board& self() const { return board(rank()); }

  // Publishes this rank's board, and finds those of the others.
  void join() {
    begin({}, Deadline(context_.timeout));
    us_ = std::make_unique<SharedPeers>();
    us_->rank = rank();
    us_->arena = SharedArena::own();
    us_->control = us_->arena->allocate(sizeof(Board) + size_t(size()) * sizeof(Pipe));
    const std::string key = "shm/", own = host_identity("pid");
    Store& store = *context_.store;
    const auto place = us_->control.get() - us_->arena->base();
    store.set(key + std::to_string(rank()), concat(own, " ", ::getpid(), " ", place, " ", us_->arena->address()));
    for (int r = 0; r < size(); ++r) {
      std::istringstream in(store.wait(key + std::to_string(r), deadline_));
      std::string host, address;
      pid_t pid = 0;
      int64_t at = 0;
      std::getline(in >> host >> pid >> at >> std::ws, address);
      RT_CHECK_AS(CommError, host == own, "shm: rank ", r, " runs on another host, or in another container, than rank ",
                  rank(), " (boot id and pid namespace ", host, " and ", own, "); use the tcp transport");
      Peer peer;
      const bool here = pid == ::getpid();
      if (!here) {
        peer.process = std::make_unique<PeerProcess>(pid);
        peer.shared = PeerArena::open(address);
      }
      peer.arena = here ? us_->arena->base() : peer.shared->base();
      peer.board = reinterpret_cast<Board*>(peer.arena + at);
      peer.pipes = reinterpret_cast<Pipe*>(peer.arena + at + sizeof(Board));
      us_->peers.push_back(std::move(peer));
    }
    for (int r = 0; r < size(); ++r)
      lanes_.emplace_back(us_->peers[size_t(r)].pipes[rank()], us_->peers[size_t(rank())].pipes[r]);
    fence();  // all ranks have opened all boards
    store.erase(key + std::to_string(rank()));
  }

  template <class Ready> void await(int peer, const Ready& ready) {
    if (ready()) return;
    for (Wait wait(*this, peer); !ready();) wait.pause();
    awake();
  }

  void awake() {
    if (!drowsy_) return;
    drowsy_ = false;
    self().asleep.store(0);
  }

  // Call after data was written for a rank: wakes it if it sleeps.
  void ring(int r) {
    Board& b = board(r);
    if (b.asleep.load() == 0) return;
    b.bell.fetch_add(1);
    futex_wake(b.bell);
  }
  void ring_all() {
    for (int r = 0; r < size(); ++r)
      if (r != rank()) ring(r);
  }

  // Moves as much data as possible, to and from all ranks. Returns a rank for which a transfer up to the ticket still
  // waits, -1: none.
  int progress(Ticket ticket) {
    int waiting = -1;
    for (int r = 0; r < size(); ++r) {
      Lane& lane = lanes_[size_t(r)];
      if (!lane.sends.empty()) push(r);
      if (!lane.recvs.empty()) pull(r);
      for (const std::deque<Open>* opened : {&lane.sends, &lane.recvs})
        if (!opened->empty() && opened->front().ticket <= ticket) waiting = r;
    }
    return waiting;
  }

  void push(int r) {
    Lane& lane = lanes_[size_t(r)];
    bool moved = false;
    while (lane.put < lane.sends.size() && push_one(lane, lane.sends[lane.put], moved)) ++lane.put;
    if (moved) ring(r);
    for (; lane.put > 0 && lane.in.taken(lane.sends.front().until); --lane.put) lane.sends.pop_front();
  }

  // True if the whole message is in the pipe.
  bool push_one(Lane& lane, Open& o, bool& moved) {
    const Transfer& t = o.transfer;
    if (!o.begun) {
      MessageHeader header{operation_, t.bytes};
      if (t.bytes >= kByReference) header.place = us_->arena->place_of(t.data, t.bytes);
      if (!lane.in.put_header(header)) return false;
      o.begun = true;
      if (header.place >= 0) {
        o.done = t.bytes;
        o.until = lane.in.position();
      }
    }
    while (o.done < t.bytes) {
      const size_t n = lane.in.put(static_cast<const char*>(t.data) + o.done, t.bytes - o.done);
      if (n == 0) break;
      o.done += n;
      if (o.done < t.bytes) lane.in.publish();
    }
    lane.in.publish();
    moved = true;
    return o.done == t.bytes;
  }

  void pull(int r) {
    Lane& lane = lanes_[size_t(r)];
    bool moved = false;
    while (!lane.recvs.empty() && pull_one(lane, r, lane.recvs.front(), moved)) lane.recvs.pop_front();
    if (moved) ring(r);
  }

  bool pull_one(Lane& lane, int r, Open& o, bool& moved) {
    const Transfer& t = o.transfer;
    if (!o.begun) {
      MessageHeader header;
      if (!lane.out.take_header(header)) return false;
      check_header(*this, r, header, t.bytes);
      o.begun = moved = true;
      if (header.place >= 0) {
        std::memcpy(t.data, us_->peers[size_t(r)].arena + header.place, t.bytes);
        o.done = t.bytes;
      }
    }
    while (o.done < t.bytes) {
      const size_t n = lane.out.take(static_cast<char*>(t.data) + o.done, t.bytes - o.done);
      if (n == 0) break;
      o.done += n;
      moved = true;
      lane.out.publish();
    }
    lane.out.publish();
    return o.done == t.bytes;
  }

  std::unique_ptr<SharedPeers> us_;
  std::vector<Lane> lanes_;
  Ticket ticket_ = 0;
  uint64_t turns_ = 0, fences_ = 0;
  uint32_t heard_ = 0;
  bool drowsy_ = false;
};

}  // namespace

std::unique_ptr<Transport> shm_transport(Context context) { return std::make_unique<Shm>(std::move(context)); }

}  // namespace ringtape::comm
