#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"

namespace ringtape::comm {

// Why a job ends. The first cause counts; every wait of the rank polls this, so that all leave with the same one. One
// object a process (ranks that are threads share it); the store carries the cause to the other processes. Thread-safe.
class Failure {
 public:
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  void raise(const std::string& cause);              // later calls change nothing
  void raise_agreed(const std::string& cause);  // the same, with what the job's processes have agreed on: asks no peers
  std::string cause() const;                         // empty: none
  // Raised, and this process's cause is the one that counts.
  bool ours() const noexcept { return ours_.load(std::memory_order_acquire); }
  void check() const { if (raised()) [[unlikely]] throw CommError(cause()); }

  // Calls f(cause) once, from the thread that raises, or at once if it has been. Returns what remove() takes; after
  // remove() f does not run.
  int on_raise(std::function<void(const std::string&)> f);
  void remove(int listener);

  // The job's other processes (comm/job/hub.h).
  struct Peers {
    virtual ~Peers() = default;
    virtual std::string agree(
        const std::string& cause) = 0;  // what counts for all: this cause, or another process's earlier one
    virtual std::optional<std::string>
    activities() = 0;  // of all ranks, see Activity::rows; nothing: another process gathers them
  };
  void set_peers(std::weak_ptr<Peers> peers);  // raise() asks them first, while whoever asks for the cause waits
  std::shared_ptr<Peers> peers() const;

  // True for one caller alone: who gathers what every rank does, for the report of a deadline that has passed.
  bool claim_report() noexcept { return !claimed_.exchange(true); }

 private:
  void publish(const std::string& cause);
  mutable std::mutex mutex_;
  std::atomic<bool> raised_{false}, ours_{false}, claimed_{false};
  std::string cause_;
  std::vector<std::pair<int, std::function<void(const std::string&)>>> listeners_;
  int next_ = 1;
  std::weak_ptr<Peers> peers_;
};

}  // namespace ringtape::comm
