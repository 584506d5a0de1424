#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/runtime.h"

namespace ringtape::bench {

// A sequence of calls, from an idle device until it is idle again.
struct Batch {
  double seconds = 0;
  double issue_seconds = 0;  // until the last call returned: the time of the host
};

template <class F> Batch run_batch(Device device, int64_t calls, F&& call) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  Batch batch;
  synchronize(device);
  const auto begin = Clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  batch.issue_seconds = since(begin);
  synchronize(device);
  batch.seconds = since(begin);
  return batch;
}

// Number of calls so that a batch takes `seconds`, after a few warm-up calls: then waiting for the device, about 10 us,
// is a small part of it.
template <class F> int64_t calls_lasting(double seconds, Device device, F&& call) {
  run_batch(device, 1, call);
  for (int64_t calls = 1;; calls *= 4) {
    const double took = run_batch(device, calls, call).seconds;
    if (took >= seconds / 8) return std::max<int64_t>(1, int64_t(double(calls) * seconds / took));
  }
}

// Seconds per call in the best of several batches.
template <class F> double best_seconds_of_a_call(Device device, F&& call) {
  constexpr int kBatches = 7;
  constexpr double kBatchSeconds = 5e-3, kEnough = 1;
  const int64_t calls = calls_lasting(kBatchSeconds, device, call);
  double best = 1e9, total = 0;
  for (int i = 0; i < kBatches && total < kEnough; ++i) {
    const double seconds = run_batch(device, calls, call).seconds;
    best = std::min(best, seconds / double(calls));
    total += seconds;
  }
  return best;
}

}  // namespace ringtape::bench
