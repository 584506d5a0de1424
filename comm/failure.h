#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/check.h"

namespace ringtape::comm {

// Why a job ends. The first cause counts; every wait of the rank polls this, so that all leave with the same one. One object a
// process (ranks that are threads share it); the store carries the cause to the other processes. Thread-safe.
class Failure {
 public:
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  void raise(const std::string& cause);              // later calls change nothing
  std::string cause() const;                         // empty: none
  void check() const { if (raised()) [[unlikely]] throw CommError(cause()); }

  // Calls f(cause) once, from the thread that raises, or at once if it has been. Returns what remove() takes; after remove() f does not run.
  int on_raise(std::function<void(const std::string&)> f);
  void remove(int listener);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> raised_{false};
  std::string cause_;
  std::vector<std::pair<int, std::function<void(const std::string&)>>> listeners_;
  int next_ = 1;
};

}  // namespace ringtape::comm
