// A team of threads for each thread that calls parallel_for. Parts are claimed one by one, by the caller too: where the
// system gives a worker no time, the caller does all of them and waits for none. With OpenMP's fixed shares and
// spinning barriers, a training step of 50 us took 18,000 us while another process used the cores.
#include "core/parallel.h"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ringtape {
namespace {

thread_local bool inside = false;

void relax() {
#if defined(__x86_64__)
  _mm_pause();  // about 45 ns on recent processors
#else
  std::this_thread::yield();
#endif
}

class Team {
 public:
  ~Team() {
    stop_.store(true);
    state_.fetch_add(kGeneration);
    state_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  void run(int64_t parts, detail::Part f, void* context) {
    while (int64_t(workers_.size()) < parts - 1) workers_.emplace_back([this] { work(); });
    // No part of the last call is running any more: these are nobody's but ours until state_ is published.
    f_ = f;
    context_ = context;
    unfinished_.store(parts, std::memory_order_relaxed);
    const uint64_t next = (state_.load(std::memory_order_relaxed) / kGeneration + 1) * kGeneration;
    state_.store(next + uint64_t(parts), std::memory_order_release);
    state_.notify_all();
    while (claim_and_run()) {}
    for (int spins = 0; unfinished_.load(std::memory_order_acquire) > 0; ++spins) spins < kSpins ? relax() : std::this_thread::yield();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  static constexpr uint64_t kGeneration = uint64_t{1} << 32;
  static constexpr int kSpins = 1000;  // about 45 us: the parallel loops of one training step find the workers awake

  void work() {
    inside = true;
    for (;;) {
      if (claim_and_run()) continue;
      const uint64_t seen = state_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_relaxed)) return;
      if (seen % kGeneration) continue;
      int spins = 0;
      while (spins < kSpins && state_.load(std::memory_order_relaxed) == seen) ++spins, relax();
      if (spins == kSpins) state_.wait(seen, std::memory_order_relaxed);
    }
  }

  bool claim_and_run() {
    uint64_t state = state_.load(std::memory_order_acquire);
    do {
      if (state % kGeneration == 0) return false;
    } while (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acquire));
    try {
      f_(context_, int64_t(state % kGeneration) - 1);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    unfinished_.fetch_sub(1, std::memory_order_release);
    return true;
  }

  alignas(64) std::atomic<uint64_t> state_{0};  // number of the call, and how many of its parts nobody has claimed yet
  alignas(64) std::atomic<int64_t> unfinished_{0};
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
  static thread_local Team team;
  struct Inside {
    Inside() { inside = true; }
    ~Inside() { inside = false; }
  } scope;
  team.run(parts, f, context);
}

}  // namespace ringtape
