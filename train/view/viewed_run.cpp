#include "train/view/viewed_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <set>

#include "comm/base/host_name.h"
#include "core/check.h"
#include "train/evaluation/snapshot.h"
#include "train/io/json.h"
#include "train/run/metrics_log.h"
#include "train/run/run_dir.h"
#include "train/settings/options.h"
#include "train/trace/step_trace.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPart = 1 << 20;                                      // bytes read at once, and of one answer, about
constexpr int64_t kLongestLine = 1 << 28;                               // bytes; a longer one ends a file
constexpr int64_t kLargestTrace = 1 << 24, kLargestSettings = 1 << 18;  // of files that are read whole
constexpr int64_t kScanned = 64;  // bytes that are looked through in the time of parsing one, about
constexpr int64_t kQuiet = 600;   // seconds without a new line after which another machine's run has ended

// A file that may be anything: only regular ones are read, and no links, which may lead to what is nobody's business.
class AnyFile {
 public:
  explicit AnyFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)) {
    struct stat now {};
    if (fd_ < 0 || ::fstat(fd_, &now) != 0 || !S_ISREG(now.st_mode)) return;
    size_ = now.st_size, changed_ = now.st_mtim.tv_sec, inode_ = now.st_ino;
    changed_ns_ = changed_ * 1'000'000'000 + now.st_mtim.tv_nsec;
  }
  ~AnyFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  AnyFile(const AnyFile&) = delete;
  AnyFile& operator=(const AnyFile&) = delete;

  int64_t size() const { return size_; }
  uint64_t inode() const { return inode_; }
  int64_t changed() const { return changed_; }  // seconds since 1970; 0: unknown
  int64_t changed_ns() const { return changed_ns_; }
  std::string read(int64_t begin, int64_t most) const {
    std::string out(size_t(std::clamp<int64_t>(size_ - begin, 0, most)), '\0');
    const ssize_t got = out.empty() ? 0 : ::pread(fd_, out.data(), out.size(), begin);
    out.resize(size_t(std::max<ssize_t>(got, 0)));
    return out;
  }
  std::string contents(int64_t most) const { return size_ <= most ? read(0, size_) : std::string(); }

 private:
  int fd_;
  int64_t size_ = 0, changed_ = 0, changed_ns_ = 0;
  uint64_t inode_ = 0;
};

// Whether a line can begin at this position.
bool begins_line(const AnyFile& file, int64_t at) {
  return at == 0 || (at > 0 && at <= file.size() && file.read(at - 1, 1) == "\n");
}

// The whole lines at a position; returns the position behind them. A line that is too long is passed over.
int64_t lines_at(const AnyFile& file, int64_t at, std::string& out) {
  const int64_t start = at;
  for (bool within = false;; within = true) {
    const std::string part = file.read(at, kPart);
    const size_t first = part.find('\n'), last = part.rfind('\n');
    const bool endless = int64_t(part.size()) < kPart || at - start >= kLongestLine;
    if (last == std::string::npos && endless) return start;  // not finished yet
    if (last == std::string::npos) {
      at += kPart;
      continue;
    }
    const size_t begin = within ? first + 1 : 0;
    out = part.substr(begin, last + 1 - begin);
    return at + int64_t(last) + 1;
  }
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    out.push_back(text.substr(0, end));
  return out;
}

std::optional<Json> parsed(std::string_view text, int depth) {
  try {
    return parse_json(text, "", depth);
  } catch (const Error&) {
    return {};
  }
}

// Of metrics: an object from its first byte on, since the text itself is passed on (a parser skips a mark of bytes).
std::optional<Json> parsed_line(std::string_view line) {
  return line.starts_with('{') ? parsed(line, 4) : std::nullopt;
}

std::optional<double> number_in(const Json& object, std::string_view key) {
  const Json* const value = object.find(key);
  return value && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::string text_in(const Json& object, std::string_view key) {
  const Json* const value = object.find(key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

// A number of steps, epochs or images from a foreign file, in the range of their settings; else zero.
int64_t count_in(const Json& object, std::string_view key) {
  const double x = number_in(object, key).value_or(0);
  return x >= 0 && x <= 1e15 ? int64_t(x) : 0;
}

Json count_or_null(int64_t x) { return x > 0 ? Json(x) : Json(); }

int64_t seconds_of(const std::string& utc) {
  std::tm time{};
  const char* const end = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  return end ? int64_t(::timegm(&time)) : 0;
}

// The spans of a trace (train/trace/timeline.h) as the page draws them.
Json trace_in(const AnyFile& file) {
  const std::optional<Json> trace = parsed(file.contents(kLargestTrace), 8);
  if (!trace || !trace->find("traceEvents") || !trace->find("traceEvents")->is_list()) return {};
  Json events = Json::list();
  int64_t ranks = 0;
  for (const Json& e : *trace->find("traceEvents")) {
    const auto rank = number_in(e, "pid"), lane = number_in(e, "tid"), start = number_in(e, "ts"),
               length = number_in(e, "dur");
    if (text_in(e, "ph") != "X" || !rank || *rank < 0 || *rank > 1e5 || !lane || !start || !length) continue;
    ranks = std::max(ranks, int64_t(*rank) + 1);
    events.push_back({{"rank", int64_t(*rank)},
                      {"lane", *lane == 0 ? "compute" : "send"},
                      {"name", text_in(e, "name")},
                      {"start", *start},
                      {"length", *length}});
  }
  const Json* const about = trace->find("otherData");
  return {{"step", about ? count_in(*about, "step") : 0}, {"ranks", ranks}, {"events", events}};
}

// The last lines of a file, at most `most`; of the last one only what is there so far.
std::vector<std::string> last_lines(const AnyFile& file, size_t most) {
  constexpr int64_t kBytes = 1 << 14;
  std::string end = file.read(std::max<int64_t>(file.size() - kBytes, 0), kBytes);
  if (!end.empty() && end.back() != '\n') end += '\n';
  std::vector<std::string_view> lines = split_lines(end);
  if (file.size() > kBytes && !lines.empty()) lines.erase(lines.begin());
  return {lines.end() - std::ptrdiff_t(std::min(most, lines.size())), lines.end()};
}

constexpr const char* kTrainStep = R"({"split":"train_step")";

}  // namespace

bool ViewedRun::is_run(const std::string& path) {
  std::error_code error;
  for (const char* name : {"config.toml", kJsonl, "train.log"})
    if (fs::is_regular_file(path + "/" + name, error)) return true;
  return false;
}

void ViewedRun::take(std::string_view text) {
  const std::optional<Json> parsed = parsed_line(text);
  if (!parsed) return;
  const Json& line = *parsed;
  const std::string split = text_in(line, "split");
  progress_.has_summary = split == "summary";
  progress_.step = std::max(progress_.step, count_in(line, "step"));
  progress_.epoch = std::max(progress_.epoch, count_in(line, "epoch"));
  if (const auto rate = number_in(line, "images_per_s"); rate && *rate > 0 && split.starts_with("train"))
    progress_.images_per_s = rate;
  if (const auto ranks = number_in(line, "ranks")) progress_.ranks = ranks;
  if (split == "train" && count_in(line, "epoch") > 0)
    progress_.steps_per_epoch = count_in(line, "step") / count_in(line, "epoch");
  if (const auto top1 = number_in(line, "top1"); top1 && (split == "val" || split == "knn" || split == "test")) {
    const auto [best, fresh] = progress_.best.try_emplace(split, *top1);
    best->second = std::max(best->second, *top1);
  }
}

// Of a pass. A resumed training may repeat one.
void ViewedRun::take_results(const std::string& split, const Json& line) {
  static const std::set<std::string_view> kPasses = {"train", "val", "test", "knn", "probe"};
  if (!kPasses.contains(split)) return;
  Json& result = progress_.results[split] = Json::object();
  for (const char* key : {"loss", "top1"})
    if (const auto value = number_in(line, key)) result[key] = *value;
  progress_.seconds += number_in(line, "seconds").value_or(0);
}

// Reads what has been added to metrics.jsonl; all of it if it is another file.
void ViewedRun::read_on(int64_t& work) {
  const AnyFile file(path_ + "/" + kJsonl);
  if (file.inode() != progress_.inode || !begins_line(file, progress_.bytes)) progress_ = {};
  progress_.inode = file.inode();
  if (file.size() == progress_.all_of) return;
  while (work > 0) {
    std::string text;
    const int64_t before = progress_.bytes;
    progress_.bytes = lines_at(file, before, text);
    if (progress_.bytes == before) {
      progress_.all_of = file.size();
      work -= std::min(file.size() - before, kLongestLine) / kScanned;
      return;
    }
    work -= (progress_.bytes - before) / kScanned;
    const std::vector<std::string_view> lines = split_lines(text);
    for (size_t i = 0; i < lines.size(); ++i) {  // of the lines of steps only the last one matters
      const bool last = i + 1 == lines.size();
      if (!last && lines[i].starts_with(kTrainStep) && lines[i + 1].starts_with(kTrainStep)) continue;
      take(lines[i]);
      if (const auto line = lines[i].starts_with(kTrainStep) ? std::nullopt : parsed_line(lines[i]))
        take_results(text_in(*line, "split"), *line);
      work -= int64_t(lines[i].size());
    }
  }
  for (const std::string& line : last_lines(file, 1)) take(line);  // its state is known before all has been read
}

// The settings; nothing if the files are as they were at that time.
std::optional<ViewedRun::Settings> ViewedRun::settings_since(int64_t changed) const {
  const std::string path = path_ + "/config.toml";
  const AnyFile config(path), environment(path_ + "/env.json");
  Settings out{.changed = config.changed_ns() + environment.changed_ns()};
  if (out.changed == changed) return {};
  const std::string settings = config.contents(kLargestSettings), machine = environment.contents(kLargestSettings);
  out.bytes = int64_t(settings.size() + machine.size());
  try {
    out.config = config_values(settings, path);
  } catch (const Error&) {  // the run is shown without them
  }
  if (auto values = parsed(machine, 8); values && values->is_object()) out.environment = std::move(*values);
  return out;
}

void ViewedRun::read(int64_t& work) {
  if (auto now = work > 0 ? settings_since(settings_.changed) : std::nullopt) {
    settings_ = std::move(*now);
    work -= settings_.bytes;
  }
  read_on(work);
}

int64_t ViewedRun::steps_per_epoch() const {
  const int64_t known = count_in(settings_.environment, "steps_per_epoch");
  return known > 0 ? known : progress_.steps_per_epoch;
}

// A run of another machine has no lock here: it is running as long as its files grow.
std::string ViewedRun::state(int64_t updated, int64_t now) const {
  if (progress_.has_summary) return "finished";
  if (is_training(path_)) return "running";
  const std::string host = text_in(settings_.environment, "host");
  return !host.empty() && host != comm::host_name() && now - updated < kQuiet ? "running" : "failed";
}

Json ViewedRun::in_list() const {
  const Json& config = settings_.config;
  const int64_t now = std::time(nullptr), epochs = count_in(config, "epochs"), batch = count_in(config, "batch-size"),
                started = seconds_of(text_in(settings_.environment, "time")), each = steps_per_epoch();
  const int64_t updated = std::max(AnyFile(path_ + "/" + kJsonl).changed(), AnyFile(path_ + "/train.log").changed());
  const std::string state = this->state(updated, now);
  Json best;
  for (const char* split : {"test", "knn", "val"})  // the last one that there is
    if (const auto found = progress_.best.find(split); found != progress_.best.end())
      best = {{"split", split}, {"top1", found->second}};
  Json left;
  if (state == "running" && progress_.images_per_s && each > 0 &&
      double(epochs) * double(each) >= double(progress_.step))
    left = (double(epochs) * double(each) - double(progress_.step)) * double(batch) / *progress_.images_per_s;
  const double ranks = progress_.ranks.value_or(number_in(settings_.environment, "ranks").value_or(1));
  const std::string strategy = text_in(config, "strategy");
  return {{"id", id_},
          {"name", fs::path(path_).filename().string()},
          {"state", state},
          {"method", text_in(config, "method")},
          {"model", text_in(config, "model")},
          {"data", text_in(config, "data")},
          {"strategy", strategy != "auto" ? strategy
                       : ranks > 1        ? "ddp"
                                          : "single"},
          {"ranks", int64_t(ranks)},
          {"started", count_or_null(started)},
          {"updated", count_or_null(updated)},
          {"epochs", count_or_null(epochs)},
          {"epoch", progress_.epoch},
          {"step", progress_.step},
          {"steps_per_epoch", count_or_null(each)},
          {"batch", count_or_null(batch)},
          {"best", best},
          {"results", Json(progress_.results)},
          {"seconds", progress_.seconds},
          {"seconds_left", left}};
}

Json ViewedRun::details() const {
  constexpr size_t kLines = 40;
  const Settings settings = settings_since(-1).value_or(Settings());
  Json out{{"id", id_}, {"config", settings.config}, {"env", settings.environment}};
  out["log"] = last_lines(AnyFile(path_ + "/train.log"), kLines);
  if (const AnyFile trace(path_ + "/" + kTraceFile); trace.size() > 0) out["trace"] = trace_in(trace);
  return out;
}

std::string ViewedRun::metrics(int64_t from) const {
  const AnyFile file(path_ + "/" + kJsonl);
  if (!begins_line(file, from)) from = 0;
  std::string text, lines;
  const int64_t next = lines_at(file, from, text);
  for (const std::string_view line : split_lines(text))
    if (parsed_line(line)) lines.append(lines.empty() ? "" : ",").append(line);
  return concat("{\"from\":", from, ",\"next\":", next,
                ",\"more\":", next > from && file.size() - from > kPart ? "true" : "false", ",\"lines\":[", lines,
                "],\"snapshots\":", Json(snapshots()).text(), "}");
}

std::vector<std::string> ViewedRun::snapshots() const {
  try {
    return snapshots_in(path_);
  } catch (const Error&) {
    return {};
  }
}

std::optional<Json> ViewedRun::snapshot(const std::string& name) const {
  const std::vector<std::string> names = snapshots();
  if (std::find(names.begin(), names.end(), name) == names.end()) return {};
  try {
    return read_snapshot(snapshot_path(path_, name));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace ringtape
