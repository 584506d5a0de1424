#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/transport/handover.h"
#include "comm/transport/header.h"

namespace ringtape::comm {

namespace {

// A message that the receiver will copy directly from the sender's buffer.
struct Post {
  const void* data;
  size_t bytes;
  Operation operation;
  std::atomic<bool> fetched{false};
};

struct Mailbox {  // of one ordered pair of ranks
  std::mutex mutex;
  std::deque<std::shared_ptr<Post>> posts;
};

// The shared state of the ranks of a group.
struct ThreadsBoard {
  explicit ThreadsBoard(int size)
      : size(size), mailboxes(size_t(size) * size_t(size)), buffers(size_t(size)), operations(size_t(size)) {}
  Mailbox& mailbox(int from, int to) { return mailboxes[size_t(from) * size_t(size) + size_t(to)]; }

  const int size;
  std::vector<Mailbox> mailboxes;
  std::vector<void*> buffers;                 // of share(), by rank
  std::vector<Operation> operations;          // the same
  std::atomic<int64_t> arrivals{0};           // at fences, of all ranks since the beginning
  std::vector<std::shared_ptr<void>> common;  // of allocate_common()
};

class Threads : public Transport {
 public:
  explicit Threads(Context context) : Transport(std::move(context)) {
    begin({}, Deadline(context_.timeout));
    board_ = Handover<ThreadsBoard>::meet(*this);
  }
  std::string_view name() const override { return "threads"; }
  Abilities abilities() const override { return {.shares_memory = true}; }
  std::unique_ptr<Transport> open(Context context) const override { return threads_transport(std::move(context)); }

  Ticket start(std::span<const Transfer> transfers) override {
    for (const Transfer& t : transfers) {
      if (t.way == Transfer::Way::send) {
        auto post = std::make_shared<Post>();
        post->data = t.data;
        post->bytes = t.bytes;
        post->operation = operation_;
        Mailbox& box = board_->mailbox(rank(), t.peer);
        const std::lock_guard lock(box.mutex);
        box.posts.push_back(post);
        open_.push_back({t, ticket_, post});
      } else {
        open_.push_back({t, ticket_, nullptr});
      }
    }
    return ticket_++;
  }

  void finish(Ticket ticket) override {
    try {
      for (const Open& o : open_)
        if (o.ticket <= ticket && !o.post) fetch(o.transfer);
      for (; !open_.empty() && open_.front().ticket <= ticket; open_.pop_front())
        if (const auto& post = open_.front().post)
          for (Wait wait(*this, open_.front().transfer.peer); !post->fetched.load(std::memory_order_acquire);)
            wait.pause();
    } catch (...) {
      withdraw();
      throw;
    }
  }

  std::vector<void*> share(void* data, size_t) override {
    board_->buffers[size_t(rank())] = data;
    board_->operations[size_t(rank())] = operation_;
    fence();
    for (int r = 0; r < size(); ++r)
      if (!same_call(board_->operations[size_t(r)], operation_)) mismatch(*this, r, board_->operations[size_t(r)]);
    return board_->buffers;
  }

  std::shared_ptr<void> allocate_common(size_t bytes) override {
    const std::shared_ptr<void> memory = rank() == 0 ? allocate(bytes) : nullptr;
    if (memory) board_->common.push_back(memory);
    void* const place = share(memory.get(), bytes)[0];
    fence();
    return {board_, place};
  }

  void fence() override {
    const int64_t before = board_->arrivals.fetch_add(1, std::memory_order_acq_rel);
    const int64_t all = (before / size() + 1) * size();
    for (Wait wait(*this, (rank() + 1) % size()); board_->arrivals.load(std::memory_order_acquire) < all;) wait.pause();
  }

 private:
  struct Open {
    Transfer transfer;
    Ticket ticket;
    std::shared_ptr<Post> post;  // of a send
  };

  // Before this rank's buffers are freed: withdraws messages that nobody has fetched, and waits for those that are
  // being copied.
  void withdraw() {
    for (const Open& o : open_) {
      if (!o.post) continue;
      Mailbox& box = board_->mailbox(rank(), o.transfer.peer);
      const std::unique_lock lock(box.mutex);
      if (std::erase(box.posts, o.post) == 0)
        while (!o.post->fetched.load(std::memory_order_acquire)) std::this_thread::yield();
    }
    open_.clear();
  }

  void fetch(const Transfer& t) {
    Mailbox& box = board_->mailbox(t.peer, rank());
    std::shared_ptr<Post> post;
    for (Wait wait(*this, t.peer);; wait.pause()) {
      const std::lock_guard lock(box.mutex);
      if (box.posts.empty()) continue;
      post = std::move(box.posts.front());
      box.posts.pop_front();
      break;
    }
    if (!same_call(post->operation, operation_) || post->bytes != t.bytes) refuse(*post, t.peer);
    if (t.bytes > 0) std::memcpy(t.data, post->data, t.bytes);
    post->fetched.store(true, std::memory_order_release);
  }

  [[noreturn]] void refuse(Post& post, int peer) {
    const Operation theirs = post.operation;
    post.fetched.store(true, std::memory_order_release);
    mismatch(*this, peer, theirs);
  }

  std::shared_ptr<ThreadsBoard> board_;
  std::deque<Open> open_;
  Ticket ticket_ = 0;
};

}  // namespace

std::unique_ptr<Transport> threads_transport(Context context) { return std::make_unique<Threads>(std::move(context)); }

}  // namespace ringtape::comm
