#include "comm/health/activity.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "comm/base/host_name.h"
#include "core/text.h"

namespace ringtape::comm {

static std::string seconds(Seconds s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f s", s.count() < 10 ? 3 : 1, s.count());
  return text;
}

// A time of the steady clock as 12:34:56.789 UTC.
static std::string time_of_day(Clock::time_point at) {
  using std::chrono::milliseconds;
  const auto wall = std::chrono::system_clock::now() -
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - at);
  const int64_t ms = std::chrono::duration_cast<milliseconds>(wall.time_since_epoch()).count() % 86'400'000;
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", int(ms / 3'600'000), int(ms / 60'000 % 60),
                int(ms / 1000 % 60), int(ms % 1000));
  return text;
}

Activity& Activity::process() {
  static Activity* const activity = new Activity;  // outlives every thread that may still use it
  return *activity;
}

Activity::Line::Line(int rank, int size, const Failure* failure, const std::atomic<int>& waiting_on)
    : rank_(rank), size_(size), failure_(failure), waiting_on_(waiting_on) {
  Activity& all = process();
  const std::lock_guard lock(all.mutex_);
  all.lines_.insert(this);
}

Activity::Line::~Line() {
  end();
  Activity& all = process();
  const std::lock_guard lock(all.mutex_);
  all.lines_.erase(this);
}

void Activity::Line::begin(const Operation& operation, std::string_view transport) {
  Activity& all = process();
  const auto now = Clock::now();
  const std::lock_guard lock(all.mutex_);
  last_ = ++all.count_;
  running_ = true;
  all.records_[last_ % kRecords] = {.number = last_,
                                    .rank = rank_,
                                    .size = size_,
                                    .step = all.step_.load(std::memory_order_relaxed),
                                    .operation = operation,
                                    .transport = transport,
                                    .begin = now,
                                    .end = Clock::time_point::min()};
}

void Activity::Line::end() {
  if (!running_) return;
  Activity& all = process();
  const auto now = Clock::now();
  const std::lock_guard lock(all.mutex_);
  running_ = false;
  if (Record& record = all.records_[last_ % kRecords]; record.number == last_) record.end = now;
}

std::string Activity::row(const Line& line, int rank, Clock::time_point now) const {
  const std::string head = concat(rank >= 0 ? rank : line.rank_, '\t', host_name(), '\t', ::getpid(), '\t');
  const Record& r = records_[line.last_ % kRecords];
  const int64_t step = line.last_ > 0 && r.number == line.last_ ? r.step : step_.load(std::memory_order_relaxed);
  const std::string at = step < 0 ? "-\t" : concat(step, '\t');
  if (line.last_ == 0) return concat(head, at, "none yet\t-\t-\t-\n");
  if (r.number != line.last_)
    return concat(head, at, line.running_ ? "a call that is no longer recorded" : "idle", "\t-\t-\t-\n");
  if (!line.running_) return concat(head, at, "idle after ", r.operation, "\t-\t-\t", seconds(now - r.end), '\n');
  const int peer = line.waiting_on_.load(std::memory_order_relaxed);
  const bool part = rank >= 0 && rank != line.rank_;  // a group with other numbers for its ranks
  const std::string waits_for =
      peer < 0 ? "-" : concat("rank ", peer, part ? concat(" of its group of ", line.size_) : "");
  return concat(head, at, r.operation, '\t', with_commas(int64_t(r.operation.bytes())), '\t', waits_for, '\t',
                seconds(now - r.begin), '\n');
}

std::string Activity::rows(const Failure* failure, int rank) const {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::vector<const Line*> lines, shown;
  std::ranges::copy_if(lines_, std::back_inserter(lines), [&](const Line* line) { return line->failure_ == failure; });
  std::ranges::copy_if(lines, std::back_inserter(shown), [&](const Line* line) { return rank < 0 || line->running_; });
  if (shown.empty() && !lines.empty())
    shown = {*std::ranges::max_element(lines, {}, [](const Line* line) { return line->last_; })};
  std::ranges::sort(shown, {}, [](const Line* line) { return std::pair(line->rank_, line->last_); });
  if (shown.empty()) return concat(rank, '\t', host_name(), '\t', ::getpid(), "\t-\tno group yet\t-\t-\t-\n");
  std::string out;
  for (const Line* line : shown) out += row(*line, rank, now);
  return out;
}

std::string Activity::history() const {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::string out = concat("the last operations of process ", ::getpid(), " on ", host_name(), " (UTC):\n");
  for (uint64_t n = count_ < kRecords ? 1 : count_ - kRecords + 1; n <= count_; ++n) {
    const Record& r = records_[n % kRecords];
    const bool runs = r.end < r.begin;
    out += concat(time_of_day(r.begin), "  rank ", r.rank, " of ", r.size, r.step < 0 ? "" : concat(", step ", r.step),
                  "  ", r.operation, " over ", r.transport, runs ? ", not ended after " : ", took ",
                  seconds((runs ? now : r.end) - r.begin), '\n');
  }
  return out;
}

std::string table(std::string_view rows) {
  std::vector<std::vector<std::string>> cells = {{kColumns.begin(), kColumns.end()}};
  while (!rows.empty()) {
    const size_t end = std::min(rows.find('\n'), rows.size());
    auto& row = cells.emplace_back();
    for (size_t at = 0; at <= end;) {
      const size_t tab = std::min(rows.find('\t', at), end);
      row.emplace_back(rows.substr(at, tab - at));
      at = tab + 1;
    }
    rows.remove_prefix(std::min(end + 1, rows.size()));
  }
  std::array<size_t, kColumns.size()> widths{};
  for (const auto& row : cells)
    for (size_t i = 0; i < std::min(row.size(), widths.size()); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : cells) {
    for (size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      const bool last = i + 1 == row.size() || i + 1 == widths.size();
      out += last ? row[i] : row[i] + std::string(widths[i] + 2 - row[i].size(), ' ');
    }
    out += '\n';
  }
  return out;
}

}  // namespace ringtape::comm
