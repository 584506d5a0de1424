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

namespace ringtape::comm {

// Where a rank stands, and what it needs to find the others of its group.
struct Context {
  int rank = 0, size = 1;
  std::shared_ptr<Store> store;      // of this group alone
  std::shared_ptr<Failure> failure;
  Seconds timeout{600};              // of one operation
  int island = 1;  // ranks r with the same r / island are near each other (one machine); it divides size
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
  virtual void wait() const = 0;    // what the calling thread asks of the device from now on starts after it
  virtual bool passed() const = 0;
};

// How bytes get from rank to rank. The algorithms are written against this alone, and know no device: what they do to
// data goes through combine() and copy(). On a GPU all of it is work on a stream, and nothing here waits for it.
//
// One thread uses a transport at a time. Messages between two ranks arrive in the order in which
// they were started, and a send and its recv have the same size. Whatever waits, throws CommError
// when the group's failure is raised or the deadline passes.
class Transport {
 public:
  // What ranks can do besides sending messages: what a Choice goes by.
  struct Abilities {
    bool shares_memory = false;    // share() is there
    bool has_collectives = false;  // those of a library
  };

  explicit Transport(Context context) : context_(std::move(context)) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string_view name() const = 0;                                  // "shm"
  virtual Abilities abilities() const { return {}; }
  virtual std::unique_ptr<Transport> open(Context context) const = 0;  // another of the same kind, for another group
  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  const Context& context() const { return context_; }
  virtual Device device() const { return {}; }

  // Everything until the next call belongs to this operation.
  void begin(const Operation& operation, Deadline deadline) {
    operation_ = operation;
    deadline_ = deadline;
    waiting_on_ = -1;
    activity_.begin(operation, name());
    opened();
  }
  void end() { activity_.end(); }  // what began is done: for reports
  const Operation& operation() const { return operation_; }
  const Deadline& deadline() const { return deadline_; }

  // Starts messages; they may travel at once, and a later start does not wait for an earlier one. After finish(ticket)
  // what was received can be read, and what was sent be written to. Tickets finish in the order of their starts.
  using Ticket = uint64_t;
  virtual Ticket start(std::span<const Transfer> transfers) = 0;
  virtual void finish(Ticket ticket) = 0;
  void exchange(std::initializer_list<Transfer> transfers) {
    finish(start(std::span(transfers.begin(), transfers.size())));
  }

  // y = factor * (sources combined in their order); see kernels/combine.h. `count` elements of the operation's dtype.
  virtual void combine(void* y, std::span<const void* const> sources, int64_t count, double factor = 1);
  virtual void copy(void* y, const void* x, size_t bytes);

  // Memory for the use of one operation; kept from one to the next. A second call may move the first's.
  virtual void* scratch(size_t bytes);

  // Where ranks can reach each other's memory: every rank gives its buffer and gets all, in rank order, valid until
  // this operation's last fence(). Empty on every rank if any rank's buffer cannot be reached; the ranks have then met
  // all the same. A small buffer outside shared memory is copied into it: the rank's own address is then not `data`,
  // and what is written there the rank copies back itself.
  virtual std::vector<void*> share(void* data, size_t bytes) { return (void)data, (void)bytes, std::vector<void*>(); }
  // Returns when every rank has called it, and what they wrote before can be read.
  // Only after a share() that was not empty.
  virtual void fence() { RT_CHECK(false, name(), " has no memory that ranks share"); }

  // A GPU's transport works on a stream of its own; on the CPU these are null and nothing. asked(): what the calling
  // thread has asked of the device until now. What is started after follow(m) comes after m; without it, begin()
  // follows what has been asked. reached(): all that has been started.
  virtual std::shared_ptr<StreamPoint> asked() const { return nullptr; }
  virtual void follow(const StreamPoint& point) { (void)point; }
  virtual std::shared_ptr<StreamPoint> reached() { return nullptr; }

  // Memory that share() can hand to the others, zeroed; other memory serves just as well, but
  // is copied. Freed with the last pointer.
  virtual std::shared_ptr<void> allocate(size_t bytes);

  // For reports: the rank this one waits for, -1 for none. Read from any thread.
  int waiting_on() const { return waiting_on_.load(std::memory_order_relaxed); }

 protected:
  virtual void opened() {}
  // For Wait. Sleeps a little, or until a message may have come.
  virtual void doze();
  // Why it is in vain to wait for `peer`, with what has come from it; empty: it is not.
  virtual std::string lost(int peer) { return (void)peer, std::string(); }
  friend class Wait;
  const Context context_;
  Operation operation_;
  Deadline deadline_{Seconds(0)};
  std::atomic<int> waiting_on_{-1};

 private:
  Activity::Line activity_{context_.rank, context_.size, context_.failure.get(), waiting_on_};
  std::shared_ptr<void> scratch_;
  size_t scratch_bytes_ = 0;
};

// A loop that waits for another rank: for (Wait wait(transport, peer); !ready();) wait.pause(); It spins a little, then
// yields its core, then dozes; it throws CommError when the failure is raised or, naming the operation and the peer,
// when the peer is lost or the deadline has passed.
class Wait {
 public:
  Wait(Transport& transport, int peer);
  ~Wait();
  void pause();

 private:
  [[noreturn]] void give_up(const std::string& cause);
  Transport& transport_;
  int64_t rounds_ = 0;
  Clock::time_point looked_at_{}, lost_at_{};  // for a lost rank; when one was found
};

// Raises the group's failure with what rank `peer` asked for beside what this rank did, and throws it.
[[noreturn]] void mismatch(Transport& transport, int peer, const Operation& theirs);

// What it says then.
std::string mismatch_cause(int rank, const Operation& ours, int peer, const Operation& theirs);

// Ranks that are threads of this process; each calls it with the context of its group (one memory_store for all).
std::unique_ptr<Transport> threads_transport(Context context);

}  // namespace ringtape::comm
