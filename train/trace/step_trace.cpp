#include "train/trace/step_trace.h"

#include <utility>

#include "comm/parallel/agreement.h"
#include "comm/transport/host.h"
#include "core/log.h"
#include "train/io/file.h"

namespace ringtape {
constexpr const char* kPhases[] = {"forward", "backward", "optimizer"};
constexpr const char* kKinds[] = {".json", ".svg"};

static int64_t ns(comm::Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

// Splits the wait off the last backward phase, which ends with Reducer::finish(), where a rank waits.
static void split_wait(std::vector<RankTimeline::Span>& phases, int64_t begin, int64_t end) {
  for (size_t i = phases.size(); i-- > 0;) {
    RankTimeline::Span& p = phases[i];
    if (p.name != kPhases[int(StepPhase::backward)]) continue;
    if (begin < p.begin || end > p.end) return;
    end = std::exchange(p.end, begin);
    phases.insert(phases.begin() + long(i) + 1, {"wait", begin, end});
    return;
  }
}

void visit(Fields& f, TraceOptions& o) {
  f("trace", o.path,
    {.help = "write what every rank does in one step to FILE.json (chrome://tracing, Perfetto) and FILE.svg",
     .unit = "FILE",
     .scope = FieldScope::invocation});
  f("trace-step", o.step,
    {.help = "the step that --trace records, counted from 1",
     .unit = "N",
     .range = kPositive,
     .scope = FieldScope::invocation});
}

void StepTrace::otherwise_into(const std::string& path) {
  if (file_.empty()) only_ = path;
}

void StepTrace::check() const {
  if (file_.empty()) return;
  for (const char* kind : kKinds) check_can_write(file_ + kind);
}

void StepTrace::check_before(int64_t steps) const {
  RT_CHECK_AS(UsageError, file_.empty() || step_ <= steps, "--trace-step ", step_, ": the training has only ", steps,
              " steps");
}

void StepTrace::check_after(int64_t steps) const {
  RT_CHECK_AS(UsageError, file_.empty() || steps < step_, "--trace-step ", step_, ": the run is already at step ",
              steps, "; choose a later step");
}

void StepTrace::begin(int64_t step) {
  on_ = (!file_.empty() || !only_.empty()) && step == step_;
  if (on_) since_ = ns(comm::Clock::now());
}

void StepTrace::ended(StepPhase phase) {
  if (!on_) return;
  const int64_t now = ns(comm::Clock::now());
  own_.phases.push_back({kPhases[int(phase)], std::exchange(since_, now), now});
}

void StepTrace::end(const comm::Reducer* reducer, comm::ProcessGroup& group) {
  if (!std::exchange(on_, false)) return;
  own_.clock = comm::host_identity("time");
  if (reducer) {
    split_wait(own_.phases, ns(reducer->waited().begin), ns(reducer->waited().end));
    for (const comm::Reducer::Trace& b : reducer->trace())
      own_.buckets.push_back({b.bytes, ns(b.ready), ns(b.begin), ns(b.end)});
  }
  std::vector<RankTimeline> ranks;
  for (const std::string& text : gather_texts(group, own_.text())) ranks.push_back(RankTimeline::parse(text));
  own_ = {};
  if (group.rank() > 0) return;
  const StepTimeline timeline = together(title_, step_, std::move(ranks));
  if (!only_.empty()) return write_file(only_, chrome_trace(timeline));
  write_file(file_ + kKinds[0], chrome_trace(timeline));
  write_file(file_ + kKinds[1], timeline_picture(timeline));
  log_info("wrote ", file_, kKinds[0], " and ", file_, kKinds[1]);
}

}  // namespace ringtape
