#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/io/json.h"
#include "train/run/events.h"
#include "train/run/metrics.h"
#include "train/run/run_dir.h"

namespace ringtape {

constexpr const char *kJsonl = "metrics.jsonl", *kCsv = "metrics.csv";
constexpr const char* kMembership = "membership";     // the "split" of a line about ranks that come or go
constexpr const char* kMetricsCrc = "metrics_crc32";  // in the summary: CRC-32 of all lines before it

// The fraction of the time of communication during which the rank did not wait.
double hidden_share(double comm_s, double exposed_s);

// {"split":"train","epoch":1,...} without the empty fields. JSON has no NaN or infinity: they become the strings "nan",
// "inf" and "-inf".
std::string json_line(const Metrics& metrics);
Json json_number(double x);
// What json_line() wrote; nothing for other lines of such a file. Throws FormatError, beginning with `where`.
std::optional<Metrics> parse_metrics(const std::string& line, const std::string& where);

// The Metrics in a file written by json_line(). Throws IoError; FormatError with file and line for an invalid line,
// unless `bad` is given: then `bad` gets the message and the line is skipped.
std::vector<Metrics> read_metrics(const std::string& path, const std::function<void(const std::string&)>& bad = {});

// metrics.jsonl, metrics.csv with a fixed header, and an events file with the same scalars.
class MetricsLog {
 public:
  using Lengths = std::map<std::string, int64_t>;  // bytes, by file name
  // Continues after these lengths, at step `from`. A file that is shorter is cut after its last complete line, with a
  // warning; one that cannot be read is not cut: throws IoError.
  explicit MetricsLog(const RunDir& run, const Lengths& keep = {}, int64_t from = 0);
  // Cuts both files, as new files, after what belongs to this step or an earlier one: for a process that goes on in
  // place of another, which may still hold them. Returns their lengths.
  static Lengths cut_behind(const RunDir& run, int64_t step);
  static void check(const RunDir& run);          // throws IoError if there are files that cannot be read
  std::vector<Metrics> earlier() const;          // metrics written before; warns about invalid lines
  std::vector<Metrics> newest(int lines) const;  // those in the last lines
  void write(const Metrics& metrics);
  void note(const Json& line);             // in metrics.jsonl only; its "split" is none of the Metrics'
  EventFile& events() { return events_; }  // for what is no scalar
  Json finish(Json summary);               // the last line of metrics.jsonl, with its checksum, which is returned
  // Flushes both files to the disk; returns their lengths. Throws IoError, as write(), if one has lost its name.
  Lengths sync();

 private:
  MetricsLog(const RunDir& run, int64_t jsonl, int64_t csv, int64_t from);  // bytes kept of each

  void check_in_place() const;

  std::string path_;  // of metrics.jsonl
  LineFile jsonl_, csv_;
  EventFile events_;
  size_t columns_;  // of metrics.csv, after the step
};

}  // namespace ringtape
