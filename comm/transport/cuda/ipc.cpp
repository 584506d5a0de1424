#include <unistd.h>

#include <atomic>
#include <deque>
#include <list>
#include <sstream>

#include "comm/transport/cuda/ipc_handles.h"
#include "comm/transport/cuda/stream.h"
#include "comm/transport/gpu.h"
#include "comm/transport/header.h"
#include "comm/transport/host.h"
#include "comm/transport/shm_arena.h"
#include "core/cuda/check.h"

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

namespace {

constexpr int kSlots = 4;                 // number of messages in flight from one rank to another
constexpr size_t kSlotBytes = 512 << 10;  // longer messages are sent in pieces

// The data of a rank for the others, in the host's shared memory, with one IpcLine for each other rank.
struct IpcBoard {
  std::atomic<uint32_t> seen;  // 1: it has opened the memory and events of all others
  std::atomic<uint32_t> left;  // 1: it has closed all of these
  cudaIpcMemHandle_t memory;   // kSlots places a rank, by receiver
};
struct alignas(64) IpcLine {
  MessageHeader headers[kSlots];              // of the message in a slot for that rank
  std::atomic<uint64_t> posted;               // pieces for it, since the beginning
  alignas(64) std::atomic<uint64_t> fetched;  // pieces from it
  cudaIpcEventHandle_t filled[kSlots];        // recorded after the copy into a slot for it
  cudaIpcEventHandle_t emptied[kSlots];       // recorded after the copy out of its slot
};
// Lock-free atomics also work between processes.
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// This rank's view of another rank.
struct Peer {
  std::shared_ptr<PeerArena> shared;
  std::unique_ptr<PeerProcess> process;
  IpcBoard* board = nullptr;
  IpcLine* lines = nullptr;
  std::unique_ptr<OpenedMemory> memory;
  std::vector<SharedEvent> filled, emptied;  // theirs: for this rank, of this rank's slots
  std::vector<SharedEvent> own_filled, own_emptied;
  bool left() const { return board && board->left.load() != 0; }
  bool ended() const { return process && process->ended(); }
  bool gone() const { return !process || left() || ended(); }
};

// Memory and events of this rank that others may still use when its transport is destroyed; kept until they have left.
struct SharedPeers {
  std::shared_ptr<SharedArena> arena;
  std::shared_ptr<char> control;
  std::unique_ptr<ExportedMemory> memory;
  std::vector<Peer> peers;
  bool over() const {
    return std::all_of(peers.begin(), peers.end(), [](const Peer& p) { return p.gone(); });
  }
};

void retire(std::unique_ptr<SharedPeers> peers) {
  static std::mutex mutex;
  static auto& kept = *new std::list<std::unique_ptr<SharedPeers>>;  // not destroyed at exit, when CUDA may be gone
  const std::lock_guard lock(mutex);
  if (peers) kept.push_back(std::move(peers));
  kept.remove_if([](const auto& m) { return m->over(); });
}

// A message is copied into a slot of the sender's memory, and its receiver copies it from there. Both use their own
// streams, ordered by events. The host only counts pieces. An event is always recorded before a stream waits for it, so
// streams never wait for each other in a cycle.
class Ipc : public GpuTransport {
 public:
  Ipc(Context context, Device device) : GpuTransport(std::move(context), device) {
    retire(nullptr);
    begin({}, Deadline(context_.timeout));
    join();
  }

  ~Ipc() override {
    use_in_destructor(index());
    if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaGetLastError();
    for (Peer& p : us_->peers) {
      p.memory.reset();
      p.filled.clear();
      p.emptied.clear();
    }
    board().left.store(1);
    retire(std::move(us_));
  }

  std::string_view name() const override { return "ipc"; }
  std::unique_ptr<Transport> open(Context context) const override { return ipc_transport(std::move(context), device_); }

  Ticket start(std::span<const Transfer> transfers) override {
    for (const Transfer& t : transfers) {
      RT_CHECK_AS(CommError, t.peer != rank(), "ipc: rank ", rank(), " sends to itself");
      Lane& lane = lanes_[size_t(t.peer)];
      (t.way == Transfer::Way::send ? lane.sends : lane.recvs).push_back({t, ticket_});
    }
    for (const Transfer& t : transfers)
      if (t.way == Transfer::Way::send) push(t.peer);
    return ticket_++;
  }

  void finish(Ticket ticket) override {
    try {
      int peer = progress(ticket);
      if (peer < 0) return;
      for (Wait wait(*this, peer); (peer = progress(ticket)) >= 0; wait.pause())
        waiting_on_.store(peer, std::memory_order_relaxed);
    } catch (...) {
      lanes_.assign(lanes_.size(), {});
      reached()->wait();  // the buffers of what is in flight may be freed at once, in the order of the caller's stream
      throw;
    }
  }

 protected:
  std::string lost(int peer) override { return why_lost(us_->peers, peer); }

 private:
  struct Open {
    Transfer transfer;
    Ticket ticket;
    size_t done = 0;     // bytes
    bool begun = false;  // its first piece has begun; a message of 0 bytes has one too
  };
  struct Lane {  // to and from one rank
    std::deque<Open> sends, recvs;
  };

  IpcBoard& board() const { return *reinterpret_cast<IpcBoard*>(us_->control.get()); }
  static IpcLine* lines_of(void* control) {
    return reinterpret_cast<IpcLine*>(static_cast<char*>(control) + (sizeof(IpcBoard) + 63) / 64 * 64);
  }
  IpcLine& line(int r) const { return lines_of(us_->control.get())[r]; }
  size_t slot_of(int receiver, uint64_t piece) const {
    return (size_t(receiver) * kSlots + piece % kSlots) * kSlotBytes;
  }

  // Publishes this rank's memory and events, and opens those of the others.
  void join() {
    us_ = std::make_unique<SharedPeers>();
    us_->arena = SharedArena::own();
    us_->control = us_->arena->allocate((sizeof(IpcBoard) + 63) / 64 * 64 + size_t(size()) * sizeof(IpcLine));
    us_->memory = std::make_unique<ExportedMemory>(index(), size_t(size()) * kSlots * kSlotBytes);
    us_->peers.resize(size_t(size()));
    lanes_.resize(size_t(size()));
    board().memory = us_->memory->handle();
    for (int r = 0; r < size(); ++r)
      for (int k = 0; k < kSlots && r != rank(); ++k) {
        Peer& p = us_->peers[size_t(r)];
        line(r).filled[k] = p.own_filled.emplace_back(index()).handle();
        line(r).emptied[k] = p.own_emptied.emplace_back(index()).handle();
      }
    const std::string key = "ipc/", own = host_identity("pid");
    Store& store = *context_.store;
    store.set(key + std::to_string(rank()),
              concat(own, " ", ::getpid(), " ", us_->control.get() - us_->arena->base(), " ", us_->arena->address()));
    for (int r = 0; r < size(); ++r)
      if (r != rank()) meet(r, store.wait(key + std::to_string(r), deadline_), own);
    board().seen.store(1);
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        for (Wait wait(*this, r); us_->peers[size_t(r)].board->seen.load() == 0;) wait.pause();
    store.erase(key + std::to_string(rank()));
  }

  void meet(int r, const std::string& said, const std::string& own) {
    std::istringstream in(said);
    std::string host, address;
    pid_t pid = 0;
    int64_t at = 0;
    std::getline(in >> host >> pid >> at >> std::ws, address);
    RT_CHECK_AS(CommError, host == own, "ipc: rank ", r, " runs on another host, or in another container, than rank ",
                rank(), "; use nccl");
    RT_CHECK_AS(CommError, pid != ::getpid(), "ipc: ranks ", rank(), " and ", r,
                " are threads of one process; use p2p");
    Peer& p = us_->peers[size_t(r)];
    p.process = std::make_unique<PeerProcess>(pid);
    p.shared = PeerArena::open(address);
    p.board = reinterpret_cast<IpcBoard*>(p.shared->base() + at);
    p.lines = lines_of(p.board);
    p.memory = std::make_unique<OpenedMemory>(index(), p.board->memory, r);
    for (int k = 0; k < kSlots; ++k) {
      p.filled.emplace_back(index(), p.lines[rank()].filled[k]);
      p.emptied.emplace_back(index(), p.lines[rank()].emptied[k]);
    }
  }

  // Puts as much work as possible on the stream, for all ranks. Returns a rank for which a transfer up to the ticket
  // still waits, -1: none.
  int progress(Ticket ticket) {
    int waiting = -1;
    for (int r = 0; r < size(); ++r) {
      Lane& lane = lanes_[size_t(r)];
      push(r);
      pull(r);
      for (const std::deque<Open>* opened : {&lane.sends, &lane.recvs})
        if (!opened->empty() && opened->front().ticket <= ticket) waiting = r;
    }
    return waiting;
  }

  void push(int r) {
    std::deque<Open>& sends = lanes_[size_t(r)].sends;
    if (sends.empty()) return;
    use(index());
    Peer& peer = us_->peers[size_t(r)];
    IpcLine& own = line(r);
    for (; !sends.empty(); sends.pop_front()) {
      Open& o = sends.front();
      const Transfer& t = o.transfer;
      for (; !o.begun || o.done < t.bytes; o.begun = true) {
        const uint64_t piece = own.posted.load();
        if (piece - peer.lines[rank()].fetched.load() == kSlots) return;
        const int k = int(piece % kSlots);
        const size_t n = std::min(kSlotBytes, t.bytes - o.done);
        peer.emptied[size_t(k)].wait_on(stream_);
        copy(us_->memory->data() + slot_of(r, piece), static_cast<const char*>(t.data) + o.done, n);
        peer.own_filled[size_t(k)].record(stream_);
        own.headers[k] = {operation_, t.bytes};
        own.posted.store(piece + 1);
        o.done += n;
      }
    }
  }

  void pull(int r) {
    std::deque<Open>& recvs = lanes_[size_t(r)].recvs;
    if (recvs.empty()) return;
    use(index());
    Peer& peer = us_->peers[size_t(r)];
    const IpcLine& theirs = peer.lines[rank()];
    for (; !recvs.empty(); recvs.pop_front()) {
      Open& o = recvs.front();
      const Transfer& t = o.transfer;
      for (; !o.begun || o.done < t.bytes; o.begun = true) {
        const uint64_t piece = line(r).fetched.load();
        if (theirs.posted.load() == piece) return;
        const int k = int(piece % kSlots);
        const size_t n = std::min(kSlotBytes, t.bytes - o.done);
        check_header(*this, r, theirs.headers[k], t.bytes);
        peer.filled[size_t(k)].wait_on(stream_);
        copy(static_cast<char*>(t.data) + o.done, peer.memory->data() + slot_of(rank(), piece), n);
        peer.own_emptied[size_t(k)].record(stream_);
        line(r).fetched.store(piece + 1);
        o.done += n;
      }
    }
  }

  std::unique_ptr<SharedPeers> us_;
  std::vector<Lane> lanes_;
  Ticket ticket_ = 0;
};

}  // namespace

std::unique_ptr<Transport> ipc_transport(Context context, Device device) {
  return std::make_unique<Ipc>(std::move(context), device);
}

}  // namespace ringtape::comm::cuda
