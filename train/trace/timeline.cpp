#include "train/trace/timeline.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "train/io/json.h"

namespace ringtape {

std::string RankTimeline::text() const {
  Json out{{"clock", clock}, {"phases", Json::list()}, {"buckets", Json::list()}};
  for (const Span& p : phases) out["phases"].push_back({p.name, p.begin, p.end});
  for (const Bucket& b : buckets) out["buckets"].push_back({b.bytes, b.ready, b.begin, b.end});
  return out.text();
}

RankTimeline RankTimeline::parse(const std::string& text) {
  const Json json = parse_json(text);
  RankTimeline out;
  out.clock = json["clock"].get<std::string>();
  for (const Json& p : json["phases"])
    out.phases.push_back({p[0].get<std::string>(), p[1].get<int64_t>(), p[2].get<int64_t>()});
  for (const Json& b : json["buckets"]) {
    const auto t = b.get<std::vector<int64_t>>();
    RT_CHECK_AS(FormatError, t.size() == 4, "a bucket of ", t.size(), " numbers");
    out.buckets.push_back({t[0], t[1], t[2], t[3]});
  }
  return out;
}

int64_t StepTimeline::end() const {
  int64_t out = 0;
  for (const RankTimeline& r : ranks) {
    for (const RankTimeline::Span& p : r.phases) out = std::max(out, p.end);
    for (const RankTimeline::Bucket& b : r.buckets) out = std::max(out, b.end);
  }
  return out;
}

StepTimeline together(const std::string& title, int64_t step, std::vector<RankTimeline> ranks) {
  std::map<std::string, int64_t> origins;
  for (const RankTimeline& r : ranks) {
    if (r.phases.empty()) continue;
    const auto [known, added] = origins.emplace(r.clock, r.phases[0].begin);
    known->second = std::min(known->second, r.phases[0].begin);
  }
  for (RankTimeline& r : ranks) {
    const int64_t origin = origins[r.clock];
    for (RankTimeline::Span& p : r.phases) p.begin -= origin, p.end -= origin;
    for (RankTimeline::Bucket& b : r.buckets) b.ready -= origin, b.begin -= origin, b.end -= origin;
  }
  return {title, step, std::move(ranks)};
}

// A duration event; times in microseconds.
static Json event(const std::string& name, const char* kind, size_t rank, int thread, int64_t begin, int64_t end) {
  const double from = double(begin) / 1e3, duration = double(end - begin) / 1e3;
  return {{"name", name}, {"cat", kind}, {"ph", "X"}, {"pid", rank}, {"tid", thread}, {"ts", from}, {"dur", duration}};
}

static Json metadata_event(const char* kind, const std::string& name, size_t rank, int thread) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

std::string chrome_trace(const StepTimeline& timeline) {
  Json events = Json::list();
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankTimeline& r = timeline.ranks[rank];
    events.push_back(metadata_event("process_name", concat("rank ", rank), rank, 0));
    events.push_back(metadata_event("thread_name", "computation", rank, 0));
    if (!r.buckets.empty()) events.push_back(metadata_event("thread_name", "communication", rank, 1));
    for (const RankTimeline::Span& p : r.phases) events.push_back(event(p.name, "phase", rank, 0, p.begin, p.end));
    for (size_t i = 0; i < r.buckets.size(); ++i) {
      const RankTimeline::Bucket& b = r.buckets[i];
      Json& e = events.push_back(event(concat("bucket ", i), "bucket", rank, 1, b.begin, b.end));
      e["args"] = {{"bytes", b.bytes}, {"ready_us", double(b.ready) / 1e3}};
    }
  }
  const Json about{{"title", timeline.title}, {"step", timeline.step}};
  return Json{{"displayTimeUnit", "ms"}, {"otherData", about}, {"traceEvents", events}}.text(1) + "\n";
}

}  // namespace ringtape
