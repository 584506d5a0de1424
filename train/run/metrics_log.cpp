#include "train/run/metrics_log.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>

#include "core/check.h"
#include "core/limits.h"
#include "core/log.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

struct MetricsColumn {
  const char* name;
  std::optional<double> Metrics::*value;
};
// clang-format off
constexpr MetricsColumn kColumns[] = {
    {"loss", &Metrics::loss},           {"top1", &Metrics::top1},
    {"top5", &Metrics::top5},           {"lr", &Metrics::lr},
    {"images_per_s", &Metrics::images_per_s}, {"seconds", &Metrics::seconds},
    {"data_s", &Metrics::data_s},       {"forward_s", &Metrics::forward_s},
    {"backward_s", &Metrics::backward_s}, {"optimizer_s", &Metrics::optimizer_s},
    {"peak_bytes", &Metrics::peak_bytes}, {"grad_norm", &Metrics::grad_norm},
    {"loss_scale", &Metrics::loss_scale}, {"ranks", &Metrics::ranks},
    {"comm_bytes", &Metrics::comm_bytes}, {"comm_s", &Metrics::comm_s},
    {"exposed_s", &Metrics::exposed_s}, {"spread", &Metrics::spread},
    {"balanced_accuracy", &Metrics::balanced},
};
// clang-format on

std::string csv_header() {
  std::string out = "split,epoch,step";
  for (const MetricsColumn& c : kColumns) out += std::string(",") + c.name;
  return out;
}

// The columns of a file, which may have been begun by an earlier version: new ones are added at the end.
size_t columns_in(const std::string& path) {
  std::string header;
  std::getline(std::ifstream(path), header);
  const auto commas = size_t(std::ranges::count(header, ','));
  return header.empty() ? std::size(kColumns) : std::min(commas - std::min<size_t>(commas, 2), std::size(kColumns));
}

std::string csv_line(const Metrics& m, size_t columns) {
  std::string out = concat(m.split, ',', m.epoch, ',', m.step);
  for (const MetricsColumn& c : std::span(kColumns).first(columns)) {
    out += ',';
    if (const auto& value = m.*c.value) out += shortest(*value);
  }
  return out;
}

}  // namespace

double hidden_share(double comm_s, double exposed_s) {
  return comm_s > 0 ? std::clamp(1 - exposed_s / comm_s, 0.0, 1.0) : 1;
}

Json json_number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (x == std::floor(x) && std::abs(x) < 0x1p53) return int64_t(x);
  return x;
}

std::string json_line(const Metrics& m) {
  Json out{{"split", m.split}, {"epoch", m.epoch}, {"step", m.step}};
  for (const MetricsColumn& c : kColumns)
    if (const auto& value = m.*c.value) out[c.name] = json_number(*value);
  return out.text();
}

static double read_number(const JsonFields& fields, const char* key) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  if (!fields[key].is_string()) return fields.real(key, -kLargest);
  const std::string text = fields.text(key);
  for (const double x : {std::nan(""), double(INFINITY), -double(INFINITY)})
    if (json_number(x) == text) return x;
  detail::fail<FormatError>({fields.where(), ": ", key, ": expected a number, got a string"});
}

std::optional<Metrics> parse_metrics(const std::string& line, const std::string& where) {
  const Json json = parse_json(line, where, 4);
  const JsonFields fields(json, where);
  Metrics m;
  m.split = fields.text("split");
  if (m.split == "summary" || m.split == kMembership) return {};
  m.epoch = fields.has("epoch") ? fields.integer("epoch") : 0, m.step = fields.has("step") ? fields.integer("step") : 0;
  for (const MetricsColumn& c : kColumns)
    if (fields.has(c.name)) m.*c.value = read_number(fields, c.name);
  return m;
}

static std::vector<Metrics> metrics_in(std::string text, const std::string& path,
                                       const std::function<void(const std::string&)>& bad) {
  constexpr size_t kLongest = 1 << 20;  // maximum bytes of a line
  std::vector<Metrics> out;
  std::istringstream lines(std::move(text));
  int64_t number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    const std::string where = concat(path, ":", number);
    try {
      RT_CHECK_AS(FormatError, line.size() <= kLongest, where, ": a line of ", line.size(), " bytes");
      if (const auto m = parse_metrics(line, where)) out.push_back(*m);
    } catch (const FormatError& e) {
      if (!bad) throw;
      bad(concat(e.what(), "; ignored"));
    }
  }
  return out;
}

std::vector<Metrics> read_metrics(const std::string& path, const std::function<void(const std::string&)>& bad) {
  return metrics_in(read_file(path), path, bad);
}

static int64_t length(const MetricsLog::Lengths& lengths, const char* name) {
  const auto found = lengths.find(name);
  return found == lengths.end() ? 0 : found->second;
}

// The bytes of a file to keep: `keep`, or less if the file is shorter: then its complete lines.
static int64_t lines_kept(const std::string& path, int64_t keep) {
  constexpr int64_t kBlock = 1 << 16;
  int64_t end = 0;
  errno = 0;
  std::ifstream file;
  if (is_there(path)) {
    file.open(path, std::ios::binary | std::ios::ate);
    const int64_t length = file ? int64_t(file.tellg()) : -1;
    RT_CHECK_AS(IoError, length >= 0, path, ": cannot read: ", reason(errno), "; start again when it can be read");
    end = std::min(length, keep);
  }
  for (std::string block; end > 0;) {
    const int64_t begin = std::max<int64_t>(end - kBlock, 0);
    block.resize(size_t(end - begin));
    RT_CHECK_AS(IoError, file.seekg(begin).read(block.data(), end - begin), path, ": cannot read: ", reason(errno));
    const size_t newline = block.rfind('\n');
    end = newline == std::string::npos ? begin : begin + int64_t(newline) + 1;
    if (newline != std::string::npos) break;
  }
  if (end < keep)
    log_warn(path, ": has ", end, " bytes in complete lines, the checkpoint expects ", keep,
             "; the training continues without the missing metrics");
  return end;
}

MetricsLog::Lengths MetricsLog::cut_behind(const RunDir& run, int64_t step) {
  const auto step_in_json = [](const std::string& line) {
    const Json json = parse_json(line, "", 4);
    const JsonFields fields(json, "");  // the summary is made anew
    return fields.text("split") == "summary" ? std::numeric_limits<int64_t>::max() : fields.integer("step");
  };
  const auto step_in_csv = [](const std::string& line) {
    const size_t comma = line.find(',', line.find(',') + 1);
    return line.starts_with("split,") || comma == std::string::npos ? 0 : std::atoll(line.c_str() + comma + 1);
  };
  // From the end, since steps ascend; the last line may not be complete.
  const auto cut = [&](const std::string& path, const auto& step_in) {
    std::string text = is_there(path) ? read_file(path) : "";
    text.resize(text.rfind('\n') + 1);
    while (!text.empty()) {
      const size_t begin = text.rfind('\n', text.size() - 2) + 1;
      try {
        if (step_in(text.substr(begin, text.size() - 1 - begin)) <= step) break;
      } catch (const FormatError&) {  // a line of half a write
      }
      text.resize(begin);
    }
    write_file(path, text);
    return int64_t(text.size());
  };
  return {{kJsonl, cut(run.file(kJsonl), step_in_json)}, {kCsv, cut(run.file(kCsv), step_in_csv)}};
}

void MetricsLog::check(const RunDir& run) {
  for (const char* name : {kJsonl, kCsv}) (void)lines_kept(run.file(name), 0);
}

// Reads both files before it cuts one.
MetricsLog::MetricsLog(const RunDir& run, const Lengths& keep, int64_t from)
    : MetricsLog(run, lines_kept(run.file(kJsonl), length(keep, kJsonl)),
                 lines_kept(run.file(kCsv), length(keep, kCsv)), from) {}

MetricsLog::MetricsLog(const RunDir& run, int64_t jsonl, int64_t csv, int64_t from)
    : path_(run.file(kJsonl)), jsonl_(path_, jsonl, true), csv_(run.file(kCsv), csv), events_(run, from),
      columns_(columns_in(run.file(kCsv))) {
  if (csv_.sync() == 0) csv_.write(csv_header());
  sync_folder(run.path());
}

std::vector<Metrics> MetricsLog::earlier() const {
  return read_metrics(path_, [](const std::string& why) { log_warn(why); });
}

std::vector<Metrics> MetricsLog::newest(int lines) const {
  std::string text = read_file(path_);
  size_t begin = text.size();
  for (int i = 0; i <= lines && begin != text.npos && begin > 0; ++i) begin = text.rfind('\n', begin - 1);
  if (begin != text.npos && begin > 0) text.erase(0, begin + 1);
  return metrics_in(std::move(text), path_, [](const std::string& why) { log_warn(why); });
}

void MetricsLog::check_in_place() const {
  for (const LineFile* file : {&jsonl_, &csv_}) file->check_in_place();
}

MetricsLog::Lengths MetricsLog::sync() {
  check_in_place();
  return {{kJsonl, jsonl_.sync()}, {kCsv, csv_.sync()}};
}

void MetricsLog::write(const Metrics& metrics) {
  check_in_place();
  jsonl_.write(json_line(metrics));
  csv_.write(csv_line(metrics, columns_));
  for (const MetricsColumn& c : kColumns)
    if (const auto& value = metrics.*c.value) events_.write(metrics.split + "/" + c.name, metrics.step, *value);
}

void MetricsLog::note(const Json& line) {
  check_in_place();
  jsonl_.write(line.text());
}

Json MetricsLog::finish(Json summary) {
  check_in_place();
  summary[kMetricsCrc] = Crc32().add(read_file(path_)).str();
  jsonl_.write(summary.text());
  return summary;
}

}  // namespace ringtape
