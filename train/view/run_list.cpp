#include "train/view/run_list.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "core/check.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFirst = 8;  // that the page can show at once

std::string without_slashes(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.find_last_not_of('/') + 1, 1));
}

std::vector<std::string> names(const std::string& folder) {
  try {
    return names_in(folder);
  } catch (const Error&) {  // it is not there at the moment
    return {};
  }
}

// Every k-th of the lines of steps, such that at most `most` are left; all others.
std::vector<Json> thinned(std::vector<Json> lines, size_t most) {
  const auto is_step = [](const Json& line) {
    const Json* const split = line.find("split");
    return split && split->is_string() && split->get<std::string>() == "train_step";
  };
  const size_t steps = size_t(std::count_if(lines.begin(), lines.end(), is_step)), every = (steps + most - 1) / most;
  size_t at = 0;
  if (every > 1) std::erase_if(lines, [&](const Json& line) { return is_step(line) && at++ % every != 0; });
  return lines;
}

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

// Finds out which runs there are now.
void RunList::look() {
  std::map<std::string, std::string> found;
  for (const std::string& path : paths_) look_in(path, path, 0, found);
  std::erase_if(runs_, [&](const auto& run) { return !found.contains(run.first); });
  for (const auto& [id, path] : found) runs_.try_emplace(id, id, path);
}

void RunList::look_in(const std::string& folder, const std::string& id, int depth,
                      std::map<std::string, std::string>& found) {
  if (found.size() >= kMostRuns) return;
  if (ViewedRun::is_run(folder)) {
    found.emplace(id, folder);
    return;
  }
  std::error_code error;
  if (depth == kDeepest || !fs::is_directory(folder, error)) return;
  for (const std::string& name : names(folder))
    if (!name.starts_with('.')) look_in(folder + "/" + name, id + "/" + name, depth + 1, found);
}

ViewedRun* RunList::find(const std::string& id) {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : &found->second;
}

Json RunList::list() {
  look();
  std::vector<std::pair<double, Json>> entries;
  for (auto& [id, run] : runs_) {
    Json entry = run.in_list();
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
  const std::lock_guard lock(mutex_);
  return list().text();
}

std::optional<std::string> RunList::run(const std::string& id) {
  const std::lock_guard lock(mutex_);
  ViewedRun* const run = find(id);
  return run ? std::optional(run->details().text()) : std::nullopt;
}

std::optional<std::string> RunList::snapshot(const std::string& id, const std::string& name) {
  const std::lock_guard lock(mutex_);
  ViewedRun* const run = find(id);
  const std::optional<Json> found = run ? run->snapshot(name) : std::nullopt;
  return found ? std::optional(found->text()) : std::nullopt;
}

std::string RunList::metrics(const std::vector<std::pair<std::string, int64_t>>& wanted) {
  const std::lock_guard lock(mutex_);
  std::string out = "{\"metrics\":{";
  bool any = false;
  for (const auto& [id, from] : wanted)
    if (const ViewedRun* const run = find(id)) {
      out += concat(any ? "," : "", Json(id).text(), ":", run->metrics(from));
      any = true;
    }
  return out + "}}";
}

std::string RunList::everything() {
  const std::lock_guard lock(mutex_);
  Json out{{"runs", list()}, {"run", Json::object()}, {"metrics", Json::object()}, {"snapshots", Json::object()}};
  for (auto& [id, run] : runs_) {
    out["run"][id] = run.details();
    std::vector<Json> lines;
    for (int64_t at = 0;;) {
      const Json part = parse_json(run.metrics(at));
      for (const Json& line : part["lines"]) lines.push_back(line);
      at = part["next"].get<int64_t>();
      if (!part["more"].get<bool>()) break;
    }
    const std::vector<std::string> names =
        spread_over(run.snapshots(), std::max<size_t>(kMostSnapshots / runs_.size(), 1));
    Json& metrics = out["metrics"][id];
    metrics = {{"from", 0}, {"next", lines.size()}, {"snapshots", names}};
    metrics["lines"] = thinned(std::move(lines), kMostSteps / runs_.size() + 1);
    Json& snapshots = out["snapshots"][id];
    snapshots = Json::object();
    for (const std::string& name : names)
      if (auto snapshot = run.snapshot(name)) snapshots[name] = std::move(*snapshot);
  }
  return out.text();
}

}  // namespace ringtape
