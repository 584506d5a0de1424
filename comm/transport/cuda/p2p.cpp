#include <cuda_runtime_api.h>

#include <deque>
#include <mutex>

#include "comm/transport/cuda/stream.h"
#include "comm/transport/gpu.h"
#include "comm/transport/handover.h"
#include "comm/transport/header.h"
#include "core/cuda/check.h"

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

namespace {

// A message that the receiver will copy directly from the sender's buffer.
struct Post {
  const void* data;
  size_t bytes;
  int index;  // of the device
  Operation operation;
  std::shared_ptr<Event> ready;   // the sender's data is complete
  std::shared_ptr<Event> copied;  // the receiver's copy, once fetched
  std::atomic<bool> fetched{false};
};

struct Mailbox {  // of one ordered pair of ranks
  std::mutex mutex;
  std::deque<std::shared_ptr<Post>> posts;
};

struct Place {  // of one rank at a share() and a fence()
  void* data = nullptr;
  int index = 0;
  Operation operation;
  // By the parity of the fence: a rank is at most one fence ahead of ranks that still read.
  std::shared_ptr<Event> reached[2];
};

// The shared state of the ranks of a group.
struct PeerBoard {
  explicit PeerBoard(int size) : size(size), mailboxes(size_t(size) * size_t(size)), places(size_t(size)) {}
  Mailbox& mailbox(int from, int to) { return mailboxes[size_t(from) * size_t(size) + size_t(to)]; }

  const int size;
  std::vector<Mailbox> mailboxes;
  std::vector<Place> places;         // by rank
  std::atomic<int64_t> arrivals{0};  // at fences, of all ranks since the beginning
};

bool reachable(int from, int to) {
  if (from == to) return true;
  int can = 0;
  RT_GPU_CHECK(cudaDeviceCanAccessPeer(&can, from, to));
  return can != 0;
}

// Gives kernels of one device access to the memory of another: memory from cudaMalloc, and the pool with the tensors.
void reach(int from, int to) {
  if (from == to) return;
  use(from);
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
  else check(status, "cudaDeviceEnablePeerAccess(to, 0)", __FILE__, __LINE__);
  cudaMemPool_t pool = nullptr;
  RT_GPU_CHECK(cudaDeviceGetDefaultMemPool(&pool, to));
  const cudaMemAccessDesc access{.location = {.type = cudaMemLocationTypeDevice, .id = from},
                                 .flags = cudaMemAccessFlagsProtReadWrite};
  RT_GPU_CHECK(cudaMemPoolSetAccess(pool, &access, 1));
}

// Two streams: one copies messages while the other combines.
class P2p : public GpuTransport {
 public:
  P2p(Context context, Device device) : GpuTransport(std::move(context), device), pulls_(device.index) {
    begin({}, Deadline(context_.timeout));
    board_ = Handover<PeerBoard>::meet(*this);
  }
  ~P2p() override {
    try {
      abandon();
    } catch (const Error&) {  // the device is lost, and with it everything that waits for it
    }
  }
  std::string_view name() const override { return "p2p"; }
  Abilities abilities() const override { return {.shares_memory = true}; }
  std::unique_ptr<Transport> open(Context context) const override { return p2p_transport(std::move(context), device_); }

  Ticket start(std::span<const Transfer> transfers) override {
    // Data to send has been written; memory to receive into has been read.
    const std::shared_ptr<Event> ready = point_of(index(), stream_);
    for (const Transfer& t : transfers) {
      std::shared_ptr<Post> post;
      if (t.way == Transfer::Way::send) {
        post = std::make_shared<Post>();
        post->data = t.data;
        post->bytes = t.bytes;
        post->index = index();
        post->operation = operation_;
        post->ready = ready;
        Mailbox& box = board_->mailbox(rank(), t.peer);
        const std::lock_guard lock(box.mutex);
        box.posts.push_back(post);
      }
      open_.push_back({t, ticket_, ready, post});
    }
    for (Open& o : open_)  // messages that have come are copied while the next ones are requested
      if (o.receives() && !o.post && !fetch(o)) break;
    return ticket_++;
  }

  void finish(Ticket ticket) override {
    try {
      for (Open& o : open_)
        if (o.ticket <= ticket && !o.post)
          for (Wait wait(*this, o.transfer.peer); !fetch(o);) wait.pause();
      for (; !open_.empty() && open_.front().ticket <= ticket; open_.pop_front()) {
        const Open& o = open_.front();
        for (Wait wait(*this, o.transfer.peer); !o.post->fetched.load(std::memory_order_acquire);) wait.pause();
        o.post->copied->wait_on(stream_);
      }
    } catch (...) {
      abandon();
      throw;
    }
  }

  std::vector<void*> share(void* data, size_t) override {
    Place& mine = board_->places[size_t(rank())];
    mine.data = data;
    mine.index = index();
    mine.operation = operation_;
    fence();
    for (int r = 0; r < size(); ++r)
      if (!same_call(board_->places[size_t(r)].operation, operation_))
        mismatch(*this, r, board_->places[size_t(r)].operation);
    if (!known_) know_peers();
    std::vector<void*> all;
    for (const Place& place : board_->places) all.push_back(place.data);
    if (all_reach_) return all;
    fence();  // before any rank shares its next buffer
    return {};
  }

  void fence() override {
    Place& mine = board_->places[size_t(rank())];
    mine.reached[fences_ % 2] = point_of(index(), stream_);
    const int64_t before = board_->arrivals.fetch_add(1, std::memory_order_acq_rel);
    const int64_t all = (before / size() + 1) * size();
    for (Wait wait(*this, (rank() + 1) % size()); board_->arrivals.load(std::memory_order_acquire) < all;) wait.pause();
    for (int r = 0; r < size(); ++r)
      if (r != rank()) board_->places[size_t(r)].reached[fences_ % 2]->wait_on(stream_);
    ++fences_;
  }

 private:
  struct Open {
    Transfer transfer;
    Ticket ticket;
    std::shared_ptr<Event> ready;
    std::shared_ptr<Post> post;  // of a send; of a recv once it is fetched
    bool receives() const { return transfer.way == Transfer::Way::recv; }
  };

  // Whether the sender has posted the message; then its copy has been started.
  bool fetch(Open& open) {
    const Transfer& t = open.transfer;
    Mailbox& box = board_->mailbox(t.peer, rank());
    const std::lock_guard lock(box.mutex);
    if (box.posts.empty()) return false;
    Post& post = *box.posts.front();
    if (!same_call(post.operation, operation_) || post.bytes != t.bytes) mismatch(*this, t.peer, post.operation);
    use(index());
    open.ready->wait_on(pulls_);
    post.ready->wait_on(pulls_);
    if (t.bytes > 0) RT_GPU_CHECK(cudaMemcpyPeerAsync(t.data, index(), post.data, post.index, t.bytes, pulls_));
    post.copied = point_of(index(), pulls_);
    post.fetched.store(true, std::memory_order_release);
    open.post = std::move(box.posts.front());
    box.posts.pop_front();
    return true;
  }

  // After a failure the buffers of messages in flight may be freed at once, in the order of the caller's stream.
  // Messages that have not been fetched never will be, and that stream waits for the others.
  void abandon() {
    if (open_.empty()) return;
    use(index());
    const cudaStream_t caller = compute_stream(index());
    for (const Open& o : open_) {
      if (!o.receives()) {
        Mailbox& box = board_->mailbox(rank(), o.transfer.peer);
        const std::lock_guard lock(box.mutex);
        std::erase(box.posts, o.post);
      }
      if (o.post && o.post->copied) o.post->copied->wait_on(caller);
    }
    open_.clear();
    reached()->wait();
  }

  void know_peers() {
    for (const Place& from : board_->places)
      for (const Place& to : board_->places) all_reach_ = all_reach_ && reachable(from.index, to.index);
    for (const Place& place : board_->places)
      if (all_reach_) reach(index(), place.index);
    known_ = true;
  }

  std::shared_ptr<PeerBoard> board_;
  const Stream pulls_;
  std::deque<Open> open_;
  Ticket ticket_ = 0;
  int64_t fences_ = 0;
  bool known_ = false, all_reach_ = true;
};

}  // namespace

std::unique_ptr<Transport> p2p_transport(Context context, Device device) {
  return std::make_unique<P2p>(std::move(context), device);
}

}  // namespace ringtape::comm::cuda
