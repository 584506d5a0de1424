#include "comm/transport.h"

#include <thread>

#include "comm/health/report.h"
#include "core/pause.h"
#include "core/runtime.h"
#include "kernels/combine.h"

namespace ringtape::comm {

static View flat(void* data, DType dtype, int64_t count, Device device) {
  return {data, dtype, device, 1, {count}, {1}};
}

// If other processes compute, a thread that yields gets its core back only after their whole time slices of several
// milliseconds; a thread that sleeps gets it when it is woken. False: a yield took long recently, and nothing was done.
static bool yield(Clock::time_point now) {
  constexpr Clock::duration kSlice = std::chrono::microseconds(500), kCrowded = std::chrono::milliseconds(100);
  static std::atomic<Clock::time_point> crowded_until;
  if (now < crowded_until.load(std::memory_order_relaxed)) return false;
  std::this_thread::yield();
  if (const auto back = Clock::now(); back - now > kSlice)
    crowded_until.store(back + kCrowded, std::memory_order_relaxed);
  return true;
}

void Transport::combine(void* y, std::span<const void* const> sources, int64_t count, double factor) {
  if (count == 0) return;
  Sources all;
  // If there are more sources than one call takes: combine the first ones, then the result with the next ones.
  for (size_t at = 0; at < sources.size();) {
    all.count = 0;
    if (at > 0) all.data[all.count++] = y;
    while (all.count < kMaxSources && at < sources.size()) all.data[all.count++] = sources[at++];
    ringtape::combine(flat(y, operation_.dtype, count, device()), all, operation_.op,
                      at == sources.size() ? factor : 1.0);
  }
}

void Transport::copy(void* y, const void* x, size_t bytes) {
  if (bytes > 0 && y != x) runtime(device()).copy(y, device(), x, device(), bytes);
}

std::shared_ptr<void> Transport::allocate(size_t bytes) {
  const Device device = this->device();
  void* data = runtime(device).allocate(std::max<size_t>(bytes, 1), device.index);
  runtime(device).zero(data, bytes, device.index);
  return {data, [device, bytes](void* p) { runtime(device).deallocate(p, std::max<size_t>(bytes, 1), device.index); }};
}

void Transport::doze() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

void* Transport::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();
    scratch_ = Transport::allocate(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

Wait::Wait(Transport& transport, int peer) : transport_(transport) {
  transport.waiting_on_.store(peer, std::memory_order_relaxed);
}
Wait::~Wait() { transport_.waiting_on_.store(-1, std::memory_order_relaxed); }

void Wait::pause() {
  // Few, because if ranks share a core, each round delays the rank that is waited for.
  constexpr int64_t kSpins = 10, kYields = 100;
  // kLook: time between two checks for a lost rank. kGrace: time for its cause to arrive by another way.
  constexpr Seconds kLook(0.005), kGrace(0.2);
  ++rounds_;
  if (rounds_ < kSpins) {
    pause_core();
    return;
  }
  transport_.context().failure->check();
  const auto now = Clock::now();
  if (rounds_ < kYields && yield(now)) return;
  if (now - looked_at_ > kLook) {
    looked_at_ = now;
    const int peer = transport_.waiting_on();
    if (const std::string cause = transport_.lost(peer); !cause.empty()) {
      if (lost_at_ == Clock::time_point{}) lost_at_ = now;
      if (now - lost_at_ > kGrace)
        give_up(concat(cause, "; rank ", transport_.rank(), " waited for it in ", transport_.operation(), " over ",
                       transport_.name()));
    }
    if (transport_.deadline().passed()) timed_out(transport_);
  }
  transport_.doze();
}

void Wait::give_up(const std::string& cause) {
  transport_.context().failure->raise(cause);
  transport_.context().failure->check();
  throw CommError(cause);
}

std::string mismatch_cause(int rank, const Operation& ours, int peer, const Operation& theirs) {
  const bool alike = theirs.str() == ours.str(), other_cuts = alike && theirs.cuts != ours.cuts,
             other_algorithm = alike && theirs.algorithm != ours.algorithm;
  return concat(
      "the ranks make different calls: rank ", rank, " calls ", ours, ", rank ", peer, " calls ", theirs,
      other_cuts ? " with parts of other sizes" : "",
      other_algorithm
          ? " with another algorithm; RINGTAPE_ALLREDUCE and set_deterministic() must be the same on every rank"
          : "; every rank must make the same calls, in the same order");
}

void mismatch(Transport& transport, int peer, const Operation& theirs) {
  Failure& failure = *transport.context().failure;
  const std::string cause = mismatch_cause(transport.rank(), transport.operation(), peer, theirs);
  failure.raise(cause);
  failure.check();
  throw CommError(cause);
}

}  // namespace ringtape::comm
