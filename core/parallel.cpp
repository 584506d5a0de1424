// A team of threads for each thread that calls parallel_for. Threads claim parts, and so does the caller: if the system
// gives a worker no time, the caller does its part instead of waiting. With OpenMP's fixed shares and spinning
// barriers, a training step of 50 us took 18,000 us while another process used the cores.
#include "core/parallel.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/pause.h"

namespace ringtape {
namespace {

thread_local bool inside = false;

// Waking a worker costs the caller about 10 us, as much as a small loop. So an idle worker spins for longer than the
// pause between two parallel loops of a training step.
constexpr auto kAwake = std::chrono::microseconds(200);

// Spins until done() holds or `longest` has passed; returns whether it holds.
template <class F> bool spin(std::chrono::microseconds longest, const F& done) {
  const auto end = std::chrono::steady_clock::now() + longest;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause_core();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

class ThreadTeam {
 public:
  ~ThreadTeam() {
    stop_.store(true);
    state_.fetch_add(kCall);
    state_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  void run(int64_t parts, detail::Part f, void* context) {
    // No part of the last call is running, so only this thread uses these members until it publishes state_.
    if (int64_t(claimed_.size()) < parts) grow(parts);
    f_ = f;
    context_ = context;
    unfinished_.store(parts, std::memory_order_relaxed);
    const uint64_t state = (state_.load(std::memory_order_relaxed) / kCall + 1) * kCall + uint64_t(parts);
    state_.store(state, std::memory_order_release);
    state_.notify_all();
    run_parts(state, 0);
    const auto finished = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
    if (!spin(kAwake, finished))
      while (!finished()) std::this_thread::yield();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  static constexpr uint64_t kCall = uint64_t{1} << 16;  // state_ = call number * kCall + number of parts

  // The workers use claimed_, so they are stopped before it is reallocated.
  void grow(int64_t parts) {
    stop_.store(true);
    state_.store((state_.load() / kCall + 1) * kCall);
    state_.notify_all();
    for (std::thread& t : workers_) t.join();
    workers_.clear();
    stop_.store(false);
    claimed_ = std::vector<std::atomic<uint64_t>>(static_cast<size_t>(parts));
    try {
      for (int64_t i = 1; i < parts; ++i) workers_.emplace_back([this, i, seen = state_.load()] { work(i, seen); });
    } catch (const std::system_error&) {
      // The system has no more threads: the existing ones, or only the caller, do all parts.
    }
  }

  void work(int64_t own, uint64_t seen) {
    inside = true;
    for (;;) {
      const auto changed = [&] { return state_.load(std::memory_order_relaxed) != seen; };
      if (!spin(kAwake, changed)) state_.wait(seen, std::memory_order_relaxed);
      seen = state_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_relaxed)) return;
      run_parts(seen, own);
    }
  }

  // Each thread starts with the part of its own number, whose data from the last loop may be in its core's cache. Then
  // it claims any free part.
  void run_parts(uint64_t state, int64_t own) {
    const auto parts = int64_t(state % kCall);
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t part = (own + i) % parts;
      if (claim(part, state / kCall)) run_part(part);
    }
  }

  // claimed_[part] is the last call in which the part was claimed. A late worker finds its own call there, or a later
  // one.
  bool claim(int64_t part, uint64_t call) {
    uint64_t last = claimed_[size_t(part)].load(std::memory_order_relaxed);
    return last < call && claimed_[size_t(part)].compare_exchange_strong(last, call, std::memory_order_acq_rel);
  }

  void run_part(int64_t part) {
    try {
      f_(context_, part);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    unfinished_.fetch_sub(1, std::memory_order_release);
  }

  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};
  std::vector<std::atomic<uint64_t>> claimed_;
  detail::Part f_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace

bool detail::in_parallel() { return inside; }

void detail::run_parts(int64_t parts, Part f, void* context) {
  static thread_local ThreadTeam team;
  struct Inside {
    Inside() { inside = true; }
    ~Inside() { inside = false; }
  } scope;
  team.run(parts, f, context);
}

}  // namespace ringtape
