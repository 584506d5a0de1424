#include "comm/bench/goodput.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "core/random.h"

namespace ringtape::comm {

namespace {

constexpr double kLostSteps = 1.5;

// The next failures and returns of nodes, earliest first.
class NodeEvents {
 public:
  struct Event {
    double at;
    int64_t node;
    bool fails;
    auto operator<=>(const Event&) const = default;
  };

  NodeEvents(const FailingJob& job, uint64_t seed) : rate_(job.failures), seed_(seed), lives_(size_t(job.nodes)) {
    for (int64_t node = 0; node < job.nodes; ++node) lives_from(0, node);
  }
  // Infinitely late if nothing happens any more.
  Event next() {
    if (queue_.empty()) return {std::numeric_limits<double>::infinity(), 0, true};
    const Event out = queue_.top();
    queue_.pop();
    return out;
  }
  void lives_from(double at, int64_t node) {
    if (rate_ == 0) return;
    const Philox4 bits = philox(seed_, uint64_t(node), lives_[size_t(node)]++);
    const double uniform = (double(uint64_t{bits.x[0]} << 20 | bits.x[1] >> 12) + 0.5) * 0x1p-52;  // in (0, 1)
    queue_.push({at - std::log(uniform) / rate_, node, true});
  }
  void returns_at(double at, int64_t node) { queue_.push({at, node, false}); }

 private:
  double rate_;
  uint64_t seed_;
  std::vector<uint64_t> lives_;  // of each node, so far
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
};

Goodput simulate_restart(const FailingJob& job, double seconds, uint64_t seed) {
  NodeEvents events(job, seed);
  const double work = job.interval > 0 ? job.interval : best_interval(job);
  Goodput out;
  for (double now = 0, runs = 0; now < seconds;) {  // runs: when the job runs again
    const auto failure = events.next();
    const double end = std::min(failure.at, seconds), waits = std::min(std::max(runs - now, 0.0), end - now);
    const double runs_for = end - now - waits, saved = std::floor(runs_for / (work + job.save));
    const double rest = saved > 0 ? runs_for - saved * (work + job.save) : runs_for, unsaved = std::min(rest, work);
    out.restarting += waits;
    if (saved > 0) out.progress += saved * work, out.saving += saved * job.save;
    out.saving += rest - unsaved;
    const bool failed = failure.at < seconds;
    (failed ? out.redone : out.progress) += unsaved;
    out.failures += failed;
    events.lives_from(now = end, failure.node);
    runs = now + job.restart;
  }
  return out;
}

// What all ranks of a live job do from `now` on: until `grouped` they regroup, until `redone` they repeat steps, until
// `joined` they wait for those who join, then they work.
struct LiveJob {
  double now = 0, grouped = 0, redone = 0, joined = 0;

  void advance(double end, double there, Goodput& out) {
    const auto spend = [&](double until) {
      const double spent = std::max(std::min(until, end) - now, 0.0);
      now += spent;
      return spent;
    };
    out.regrouping += spend(grouped), out.redone += spend(redone), out.joining += spend(joined);
    const double works = spend(end);
    out.progress += works * there, out.missing += works * (1 - there);
  }
};

Goodput simulate_live(const FailingJob& job, double seconds, uint64_t seed) {
  NodeEvents events(job, seed);
  Goodput out;
  LiveJob live;
  for (int64_t there = job.nodes;;) {
    const auto event = events.next();
    live.advance(std::min(event.at, seconds), double(there) / double(job.nodes), out);
    if (event.at >= seconds) return out;
    if (!event.fails) {
      ++there, live.joined = event.at + job.join;
      events.lives_from(event.at, event.node);
      continue;
    }
    ++out.failures;
    events.returns_at(event.at + job.replace, event.node);
    live.grouped = event.at + job.detect + job.regroup, live.redone = live.grouped + kLostSteps * job.step;
    if (--there == 0) out.redone += std::exchange(out.progress, 0.0);
  }
}

}  // namespace

double best_interval(const FailingJob& job) {
  const double rate = job.failures * double(job.nodes);
  if (rate == 0) return std::numeric_limits<double>::infinity();
  // Where the derivative is zero, x = rate * interval solves 1 - x = exp(-x - rate * save); 0 < x < 1.
  double low = 0, high = 1;
  for (int i = 0; i < 100; ++i) {
    const double x = (low + high) / 2;
    (x + std::expm1(-x - rate * job.save) < 0 ? low : high) = x;
  }
  return high / rate;
}

Goodput simulate_goodput(const FailingJob& job, Recovery recovery, double seconds, uint64_t seed) {
  return (recovery == Recovery::live ? simulate_live : simulate_restart)(job, seconds, seed);
}

double goodput_by_formula(const FailingJob& job, Recovery recovery) {
  const double rate = job.failures * double(job.nodes);
  if (recovery == Recovery::live) {
    const double there = 1 / (1 + job.failures * job.replace);
    return there * std::exp(-there * rate * (job.detect + job.regroup + kLostSteps * job.step + job.join));
  }
  const double work = job.interval > 0 ? job.interval : best_interval(job);
  if (rate == 0) return std::isinf(work) ? 1 : work / (work + job.save);
  return rate * work / (std::exp(rate * job.restart) * std::expm1(rate * (work + job.save)));
}

}  // namespace ringtape::comm
