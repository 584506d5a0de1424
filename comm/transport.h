#pragma once
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/base/deadline.h"
#include "comm/health/activity.h"
#include "comm/health/failure.h"
#include "comm/operation.h"
#include "comm/store/store.h"
#include "core/device.h"
#include "core/part.h"

namespace ringtape::comm {

// The rank and size of a group, and what a rank needs to find the others.
struct Context {
  int rank = 0, size = 1;
  std::shared_ptr<Store> store;  // only of this group
  std::shared_ptr<Failure> failure;
  Seconds timeout{600};  // of one operation
  int island = 1;        // ranks with the same rank / island are close (one machine); it divides size
};

// One message of an exchange, to or from `peer`.
struct Transfer {
  enum class Way : uint8_t { send, recv } way;
  int peer;
  void* data;  // of the transport's device; a send does not write to it
  size_t bytes;
};
inline Transfer send_to(int peer, const void* data, size_t bytes) {
  return {Transfer::Way::send, peer, const_cast<void*>(data), bytes};
}
inline Transfer recv_from(int peer, void* data, size_t bytes) { return {Transfer::Way::recv, peer, data, bytes}; }

// A point in the work of a GPU.
struct StreamPoint {
  virtual ~StreamPoint() = default;
  virtual void wait() const = 0;  // work that the calling thread gives the device from now on starts after it
  virtual bool passed() const = 0;
};

// Moves bytes from rank to rank. The algorithms use only this interface and know no device: they process data with
// combine() and copy(). On a GPU all of this is work on a stream, and no call here waits for it.
//
// One thread uses a transport at a time. Messages between two ranks arrive in the order in which
// they were started, and a send and its recv have the same size. Every function that waits throws CommError when the
// group's failure is raised or the deadline passes.
class Transport {
 public:
  // What ranks can do besides sending messages; used by Choice.
  struct Abilities {
    bool shares_memory = false;    // share() works
    bool has_collectives = false;  // a library's collectives
  };

  explicit Transport(Context context) : context_(std::move(context)) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string_view name() const = 0;  // "shm"
  virtual Abilities abilities() const { return {}; }
  virtual std::unique_ptr<Transport> open(Context context) const = 0;  // another of the same kind, for another group
  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  const Context& context() const { return context_; }
  virtual Device device() const { return {}; }

  // Everything until the next begin() belongs to this operation, whose parts are cut at `cuts` (size() + 1; none: equal
  // parts), which must live as long.
  void begin(const Operation& operation, Deadline deadline, std::span<const int64_t> cuts = {}) {
    operation_ = operation;
    cuts_ = cuts;
    deadline_ = deadline;
    waiting_on_ = -1;
    activity_.begin(operation, name());
    opened();
  }
  void end() { activity_.end(); }  // the operation is done: for reports
  const Operation& operation() const { return operation_; }
  const Deadline& deadline() const { return deadline_; }
  // The elements of a rank's part in the whole buffer of a reduce_scatter or all_gather.
  Part part(int rank) const {
    if (!cuts_.empty()) return {cuts_[size_t(rank)], cuts_[size_t(rank) + 1]};
    return {operation_.count * rank, operation_.count * (rank + 1)};
  }

  // Starts messages. They may be transferred at the same time, and a later start does not wait for an earlier one.
  // After finish(ticket) received data can be read, and sent data can be overwritten. Tickets finish in the order of
  // their starts.
  using Ticket = uint64_t;
  virtual Ticket start(std::span<const Transfer> transfers) = 0;
  virtual void finish(Ticket ticket) = 0;
  void exchange(std::initializer_list<Transfer> transfers) {
    finish(start(std::span(transfers.begin(), transfers.size())));
  }

  // y = factor * (sources combined in their order); see kernels/combine.h. `count` elements of the operation's dtype.
  virtual void combine(void* y, std::span<const void* const> sources, int64_t count, double factor = 1);
  virtual void copy(void* y, const void* x, size_t bytes);

  // Memory for use within one operation; kept from one operation to the next. A second call may move the memory of the
  // first.
  virtual void* scratch(size_t bytes);

  // For transports whose ranks can access each other's memory: every rank gives its buffer and gets the addresses of
  // all, in rank order, valid until this operation's last fence(). The result is empty on every rank if the buffer of
  // any rank cannot be accessed; the ranks have then synchronised all the same. A small buffer outside shared memory is
  // copied into it: the rank's own address is then not `data`, and the rank must copy back what is written there.
  virtual std::vector<void*> share(void* /*data*/, size_t /*bytes*/) { return {}; }
  // Returns when every rank has called it, and what they wrote before the call can be read.
  // Only after a share() that was not empty.
  virtual void fence() { RT_CHECK(false, name(), " has no memory that ranks share"); }

  // A GPU's transport has its own stream; on the CPU these return null and do nothing. asked(): the point after all
  // work that the calling thread has given the device so far. Work that is started after follow(p) comes after p;
  // without follow(), begin() follows asked(). reached(): the point after all work that has been started.
  virtual std::shared_ptr<StreamPoint> asked() const { return nullptr; }
  virtual void follow(const StreamPoint& /*point*/) {}
  virtual std::shared_ptr<StreamPoint> reached() { return nullptr; }

  // Zeroed memory that share() can pass to the others. Other memory works too, but is copied. Freed with the last
  // pointer.
  virtual std::shared_ptr<void> allocate(size_t bytes);
  // The same zeroed memory on every rank, which all of them call for in one operation; freed when all have left the
  // group. Only if ranks can access each other's memory, on a CPU; null if not.
  virtual std::shared_ptr<void> allocate_common(size_t /*bytes*/) { return nullptr; }

  // For reports: the rank for which this one waits, -1 for none. Read from any thread.
  int waiting_on() const { return waiting_on_.load(std::memory_order_relaxed); }

 protected:
  virtual void opened() {}
  // For Wait. Sleeps for a short time, or until a message may have come.
  virtual void doze();
  // The reason why nothing more can come from `peer`; empty if it is still there.
  virtual std::string lost(int /*peer*/) { return ""; }
  friend class Wait;
  const Context context_;
  Operation operation_;
  std::span<const int64_t> cuts_;
  Deadline deadline_{Seconds(0)};
  std::atomic<int> waiting_on_{-1};

 private:
  Activity::Line activity_{context_.rank, context_.size, context_.failure.get(), waiting_on_};
  std::shared_ptr<void> scratch_;
  size_t scratch_bytes_ = 0;
};

// A loop that waits for another rank: for (Wait wait(transport, peer); !ready();) wait.pause(); It spins briefly, then
// yields its core, then sleeps. It throws CommError when the failure is raised. It also throws CommError, naming the
// operation and the peer, when the peer is lost or the deadline has passed.
class Wait {
 public:
  Wait(Transport& transport, int peer);
  ~Wait();
  void pause();

 private:
  [[noreturn]] void give_up(const std::string& cause);
  Transport& transport_;
  int64_t rounds_ = 0;
  Clock::time_point looked_at_{}, lost_at_{};  // last check for a lost rank; when one was found
};

// Raises the group's failure with the operations that rank `peer` and this rank requested, and throws it.
[[noreturn]] void mismatch(Transport& transport, int peer, const Operation& theirs);

// The text of this failure.
std::string mismatch_cause(int rank, const Operation& ours, int peer, const Operation& theirs);

// Ranks that are threads of this process; each calls it with the context of its group (one memory_store for all).
std::unique_ptr<Transport> threads_transport(Context context);

}  // namespace ringtape::comm
