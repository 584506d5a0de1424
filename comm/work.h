#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/process_group.h"

namespace ringtape::comm {

class Worker;

struct Work::State {
  Operation operation;
  CollectiveFn run;
  Tensor x, y;  // kept until it is done
  Worker* worker;
  std::shared_ptr<StreamPoint> asked, ended;  // on a GPU: what it follows, and its end once it is done
  std::atomic<bool> done{false};
  Span span;          // readable once it is done
  std::string error;  // readable once it is done; empty: none
};

// Does the collectives of a group in the order of their calls: on the thread that waits for one,
// or, where that was asked for, on its own.
class Worker {
 public:
  explicit Worker(Transport& transport) : transport_(transport) {}
  ~Worker();  // does what is left, except where an exception takes the rank away

  void add(std::shared_ptr<Work::State> work);
  void start(const Work::State& work);   // on the worker's thread, with all before it
  void finish(const Work::State& work);  // returns when it is done

 private:
  void execute(Work::State& work) noexcept;
  void execute_next(std::unique_lock<std::mutex>& lock);
  void loop();

  Transport& transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Work::State>> queue_;
  // Done as far as the host goes; a GPU may still use their memory.
  std::deque<std::shared_ptr<Work::State>> in_flight_;
  bool busy_ = false;     // some thread is executing one:
  Operation current_;
  bool stopped_ = false;
  uint64_t started_ = 0;  // up to which sequence number the worker's thread is to go
  std::thread thread_;    // from the first start() on
};

}  // namespace ringtape::comm
