#include "comm/parallel/parallel_apply.h"

#include <exception>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/tape.h"
#include "core/limits.h"

namespace ringtape::comm {

namespace {

// A thread that runs tasks one after the other.
class ReplicaThread {
 public:
  ~ReplicaThread() {
    task_ = nullptr;
    asked_.release();
    thread_.join();
  }
  void ask(const std::function<void()>& task) {
    task_ = &task;
    asked_.release();
  }
  void wait() { done_.acquire(); }

 private:
  void loop() {
    for (asked_.acquire(); task_; asked_.acquire()) {
      (*task_)();
      done_.release();
    }
  }

  const std::function<void()>* task_ = nullptr;  // never throws
  std::binary_semaphore asked_{0}, done_{0};
  std::thread thread_ = start_thread("a device's work", [this] { loop(); });
};

// The thread-local settings of the caller that a replica's thread takes over.
struct Surroundings {
  bool records = grad_enabled();
  DType autocast = autocast_dtype();
  int threads = ringtape::threads();
  RandomState random = default_generator().state();
};

// Distance of the random numbers of two consecutive replicas, in blocks: more than a replica draws.
constexpr uint64_t kRandomBlocks = uint64_t{1} << 48;

struct Replica {
  std::function<void()> task;
  std::exception_ptr failure;
  uint64_t drawn = 0;  // blocks of random numbers
};

void run_replica(Replica& replica, int i, int n, const Surroundings& from, const std::function<void(int)>& f) {
  try {
    set_threads(std::max(1, from.threads / n + (i < from.threads % n ? 1 : 0)));
    RandomState random = from.random;
    random.counter += uint64_t(i) * kRandomBlocks;
    default_generator().set_state(random);
    const Autocast autocast(from.autocast);
    std::optional<NoGrad> no_grad;
    if (!from.records) no_grad.emplace();
    f(i);
    replica.drawn = default_generator().state().counter - random.counter;
  } catch (...) {
    replica.failure = std::current_exception();
  }
}

template <class... Types> void throw_as(const std::exception& e, const std::string& message) {
  ((dynamic_cast<const Types*>(&e) ? throw Types(message) : void()), ...);
  throw Error(message);
}

void throw_named(const std::exception_ptr& failure, int replica, Device device) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    throw_as<ShapeError, DTypeError, DeviceError, AutogradError, UsageError, IoError, FormatError, CommError,
             OutOfMemory>(e, concat("in replica ", replica, " on ", device, ": ", e.what()));
  }
}

}  // namespace

void parallel_apply(const Devices& devices, const std::function<void(int)>& f) {
  static thread_local std::vector<std::unique_ptr<ReplicaThread>> workers;
  const auto n = devices.size();
  while (workers.size() < n) workers.push_back(std::make_unique<ReplicaThread>());
  const Surroundings from;
  std::vector<Replica> replicas(n);
  for (size_t i = 0; i < n; ++i) replicas[i].task = [&, i] { run_replica(replicas[i], int(i), int(n), from, f); };
  for (size_t i = 0; i < n; ++i) workers[i]->ask(replicas[i].task);
  for (size_t i = 0; i < n; ++i) workers[i]->wait();
  RandomState after = from.random;
  for (size_t i = 0; i < n; ++i) {
    if (replicas[i].failure) throw_named(replicas[i].failure, int(i), devices[i]);
    after.counter = std::max(after.counter, from.random.counter + replicas[i].drawn);
  }
  default_generator().set_state(after);
}

}  // namespace ringtape::comm
