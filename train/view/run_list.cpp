#include "train/view/run_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "train/io/json.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFirst = 8;  // that the page can show at once

std::string without_slashes(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.find_last_not_of('/') + 1, 1));
}

// The folders in a folder, in order; none if it cannot be read now.
std::vector<std::string> folders_in(const std::string& folder) {
  constexpr int kMax = 20000;  // names: it is a folder of data, not of runs
  std::vector<std::string> out;
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && count < kMax; at.increment(error), ++count)
    if (std::error_code unknown; at->is_directory(unknown)) out.push_back(at->path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

// Lines of metrics, of which those of steps are thinned out: every k-th is kept, at most twice `most` of them.
class ThinnedLines {
 public:
  explicit ThinnedLines(size_t most) : most_(most) {}
  void add(const Json& line) {
    const Json* const split = line.find("split");
    const bool is_step = split && *split == Json("train_step");
    if (is_step && steps_++ % every_ != 0) return;
    lines_.emplace_back(is_step ? int64_t(steps_ - 1) : -1, line);
    if (!is_step || ++kept_ <= 2 * most_) return;
    every_ *= 2;
    std::erase_if(lines_, [&](const auto& l) { return l.first >= 0 && size_t(l.first) % every_ != 0; });
    kept_ = size_t(std::count_if(lines_.begin(), lines_.end(), [](const auto& l) { return l.first >= 0; }));
  }
  std::vector<Json> take() {
    std::vector<Json> out;
    for (auto& [number, line] : lines_) out.push_back(std::move(line));
    return out;
  }

 private:
  size_t most_, steps_ = 0, every_ = 1, kept_ = 0;
  std::vector<std::pair<int64_t, Json>> lines_;  // with the number of a step's line; -1: another
};

// At most `most` of the names, at equal distances, with the last one.
std::vector<std::string> spread_over(const std::vector<std::string>& names, size_t most) {
  std::vector<std::string> out;
  most = std::min(most, names.size());
  for (size_t i = 1; i <= most; ++i) out.push_back(names[i * names.size() / most - 1]);
  return out;
}

}  // namespace

RunList::RunList(std::vector<std::string> paths) : paths_(std::move(paths)) {
  for (std::string& path : paths_) {
    path = without_slashes(path);
    RT_CHECK_AS(IoError, is_folder_at(path), path, ": there is no such folder");
  }
  root_ = paths_.empty() ? "runs" : paths_.size() == 1 ? paths_[0] : concat(paths_.size(), " folders");
  if (paths_.empty()) paths_ = {"runs"};
  look();
  for (const std::string& path : paths_)
    if (runs_.contains(path) && first_.size() < kFirst) first_.push_back(path);
}

// Finds out which runs there are now; at most a tenth of the time is spent on that.
void RunList::look() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  if (now < look_again_) return;
  std::map<std::string, std::string> found;
  Seen seen;
  for (const std::string& path : paths_) look_in(path, path, 0, found, seen);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(runs_, [&](const auto& run) { return !found.contains(run.first); });
    for (const auto& [id, path] : found)
      if (auto& run = runs_[id]; !run) run = std::make_shared<ViewedRun>(id, path);
  }
  look_again_ = Clock::now() + std::min<Clock::duration>(10 * (Clock::now() - now), std::chrono::minutes(1));
}

void RunList::look_in(const std::string& folder, const std::string& id, int depth,
                      std::map<std::string, std::string>& found, Seen& seen) {
  if (found.size() >= kMaxRuns) return;
  if (ViewedRun::is_run(folder)) {
    found.emplace(id, folder);
    return;
  }
  struct stat is {};
  if (depth == kDeepest || ::stat(folder.c_str(), &is) != 0) return;
  const auto [earlier, fresh] = seen.try_emplace({is.st_dev, is.st_ino}, depth);
  if (!fresh && earlier->second <= depth) return;  // links have led here before
  earlier->second = depth;
  for (const std::string& name : folders_in(folder))
    if (!name.starts_with('.')) look_in(folder + "/" + name, id + "/" + name, depth + 1, found, seen);
}

std::shared_ptr<const ViewedRun> RunList::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second;
}

RunList::Runs RunList::known() {
  const std::lock_guard lock(mutex_);
  return runs_;
}

// reading_ must be held.
Json RunList::list(int64_t work) {
  look();
  const Runs runs = known();
  const auto from = runs.upper_bound(last_read_);
  const auto read_on = [&](auto at, auto end) {
    for (; at != end; ++at) {  // of those behind the work only whether they have ended
      if (work > 0) last_read_ = at->first;
      at->second->read(work);
    }
  };
  read_on(from, runs.end());
  read_on(runs.begin(), from);
  std::vector<std::pair<double, Json>> entries;
  for (const auto& [id, run] : runs) {
    Json entry = run->in_list();
    const Json* const updated = entry.find("updated");
    entries.emplace_back(updated->is_number() ? updated->get<double>() : 0, std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Json all = Json::list();
  for (auto& [updated, entry] : entries) all.push_back(std::move(entry));
  Json out{{"now", int64_t(std::time(nullptr))}, {"root", root_}, {"runs", all}};
  if (!first_.empty()) out["first"] = first_;
  return out;
}

std::string RunList::runs() {
  std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading) {
    if (const std::lock_guard lock(mutex_); !list_.empty()) return list_;
    reading.lock();
  }
  std::string now = list(kWork).text();
  const std::lock_guard lock(mutex_);
  return list_ = std::move(now);
}

std::vector<Json> RunList::all() {
  const std::lock_guard reading(reading_);
  const Json now = list(std::numeric_limits<int64_t>::max());
  std::vector<Json> out;
  for (const Json& entry : now["runs"]) {
    out.push_back(entry);
    if (const auto run = find(entry["id"].get<std::string>())) out.back()["config"] = run->config();
  }
  return out;
}

std::optional<std::string> RunList::run(const std::string& id) {
  const auto run = find(id);
  return run ? std::optional(run->details().text()) : std::nullopt;
}

std::optional<std::string> RunList::snapshot(const std::string& id, const std::string& name) {
  const auto run = find(id);
  const std::optional<Json> found = run ? run->snapshot(name) : std::nullopt;
  return found ? std::optional(found->text()) : std::nullopt;
}

std::string RunList::metrics(const std::map<std::string, int64_t>& wanted) {
  constexpr size_t kMax = 1 << 23;  // bytes, about; the page asks again
  std::string out = "{\"metrics\":{";
  bool any = false;
  for (const auto& [id, from] : wanted)
    if (const auto run = out.size() < kMax ? find(id) : nullptr) {
      out += concat(any ? "," : "", Json(id).text(), ":", run->metrics(from));
      any = true;
    }
  return out + "}}";
}

std::string RunList::everything(const Json& comparison) {
  const std::lock_guard reading(reading_);
  Json out{{"runs", list(std::numeric_limits<int64_t>::max())},
           {"run", Json::object()},
           {"metrics", Json::object()},
           {"snapshots", Json::object()}};
  if (!comparison.is_null()) out["comparison"] = comparison;
  const Runs runs = known();
  for (const auto& [id, run] : runs) {
    out["run"][id] = run->details();
    ThinnedLines lines(kMaxSteps / runs.size() + 1);
    int64_t end = 0;
    for (bool more = true; more;) {
      const Json part = parse_json(run->metrics(end));
      if (part["from"] != Json(end)) break;  // another file now
      for (const Json& line : part["lines"]) lines.add(line);
      end = part["next"].get<int64_t>(), more = part["more"].get<bool>();
    }
    const std::vector<std::string> names =
        spread_over(run->snapshots(), std::max<size_t>(kMaxSnapshots / runs.size(), 1));
    Json& metrics = out["metrics"][id];
    metrics = {{"from", 0}, {"next", end}, {"snapshots", names}};
    metrics["lines"] = lines.take();
    Json& snapshots = out["snapshots"][id];
    snapshots = Json::object();
    for (const std::string& name : names)
      if (auto snapshot = run->snapshot(name)) snapshots[name] = std::move(*snapshot);
  }
  return out.text();
}

}  // namespace ringtape
