#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"

namespace ringtape::comm {

// Why a job ends. The first cause counts. Every wait of a rank polls this object, so that all report the same cause.
// One object per process (ranks that are threads share it); the store passes the cause to the other processes.
// Thread-safe.
class Failure {
 public:
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  void raise(const std::string& cause);         // later calls change nothing
  void raise_agreed(const std::string& cause);  // the same with a cause that all processes agreed on: asks no peers
  std::string cause() const;                    // empty: none
  // Raised, and the cause of this process is the one that counts.
  bool ours() const noexcept { return ours_.load(std::memory_order_acquire); }
  void check() const {
    if (raised()) [[unlikely]]
      throw CommError(cause());
  }

  // Calls f(cause) once: from the thread that raises, or at once if the failure has been raised already. Returns the
  // argument for remove(); after remove() f does not run.
  int on_raise(std::function<void(const std::string&)> f);
  void remove(int listener);

  // The job's other processes (comm/job/hub.h).
  struct Peers {
    virtual ~Peers() = default;
    virtual std::string agree(
        const std::string& cause) = 0;  // the cause for all: this one, or another process's earlier one
    virtual std::optional<std::string>
    activities() = 0;  // of all ranks, see Activity::rows; nullopt: another process gathers them
  };
  void set_peers(std::weak_ptr<Peers> peers);  // raise() asks them first; callers of cause() wait meanwhile
  std::shared_ptr<Peers> peers() const;

  // True for only one caller, which then gathers what every rank does, for the report of a passed deadline.
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
