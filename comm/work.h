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
  Tensor x, y;       // held until it is done,
  const void* from;  // and where they are
  void* to;
  std::shared_ptr<const std::vector<int64_t>> cuts;  // null: equal parts
  Worker* worker;
  std::shared_ptr<StreamPoint> asked, ended;  // on a GPU: the point it follows, and its end once it is done
  std::atomic<bool> done{false};
  std::atomic<bool> followed{false};  // a stream waits for `ended`: memory is freed behind it
  Span span;                          // readable once it is done
  std::string error;                  // readable once it is done; empty: none
  // Of a thread that records work of the group's device (core/recording.h), nothing of the above: each launch requests,
  // starts and waits for a collective of its own, where this one was; the last launch's.
  std::shared_ptr<Work> latest;

  // A Work that makes this request at each launch.
  static Work recorded(std::function<Work()> request);
};

// Executes the collectives of a group in the order of their calls: on the thread that waits for one or, after start(),
// on the worker's own thread.
class Worker {
 public:
  explicit Worker(Transport& transport) : transport_(transport) {}
  ~Worker();  // finishes the remaining work, unless an exception ends the rank

  void add(std::shared_ptr<Work::State> work);
  void start(const Work::State& work);   // on the worker's thread, with all earlier ones
  void finish(const Work::State& work);  // returns when it is done

 private:
  void execute(Work::State& work) noexcept;
  void execute_next(std::unique_lock<std::mutex>& lock);
  void loop();

  Transport& transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Work::State>> queue_;
  // Done on the host; a GPU may still use their memory.
  std::deque<std::shared_ptr<Work::State>> in_flight_;
  bool busy_ = false;  // some thread is executing an operation:
  Operation current_;
  bool stopped_ = false;
  uint64_t started_ = 0;  // the worker's thread executes up to this sequence number
  std::thread thread_;    // from the first start() on
};

}  // namespace ringtape::comm
