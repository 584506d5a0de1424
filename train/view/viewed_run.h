#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

// A run as the page of `ringtape view` asks for it; docs/view.md has the fields. Its files may grow or be replaced
// meanwhile, be copied from another machine or be damaged: what cannot be read is left out, and nothing here throws
// for it. Files of any size need bounded memory, and read() bounded time. Only read() and in_list() share what they
// know: one thread at a time may call these; all else, any.
class ViewedRun {
 public:
  // `id`: its name on the page, unique among the runs shown.
  ViewedRun(std::string id, std::string path) : id_(std::move(id)), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // Reads what is new in the settings and metrics. `work`: how much may still be done, in bytes that are parsed; it
  // becomes smaller, and at 0 the rest is left for the next call.
  void read(int64_t& work);
  Json in_list() const;                                    // one entry of api/runs, of what has been read
  Json details() const;                                    // api/run
  const Json& config() const { return settings_.config; }  // what in_list() knows of its settings; empty if damaged
  // Its part of api/metrics, as JSON text: whole lines from a position that an earlier part gave as `next`; from the
  // beginning if there is none, or if the file is another one.
  std::string metrics(int64_t from) const;
  std::vector<std::string> snapshots() const;                   // their names, oldest first
  std::optional<Json> snapshot(const std::string& name) const;  // nothing if it is not there, or damaged

  static bool is_run(const std::string& path);  // whether the folder holds a run

 private:
  // What the lines of metrics.jsonl say so far.
  struct Progress {
    uint64_t inode = 0;  // of the file
    int64_t bytes = 0, step = 0, epoch = 0, steps_per_epoch = 0;
    int64_t all_of = -1;  // the size of the file when nothing more could be read
    std::optional<double> images_per_s, ranks;
    std::map<std::string, double> best;   // top-1, by split
    std::map<std::string, Json> results;  // the last loss and top-1, by split
    double seconds = 0;                   // of all passes
    bool has_summary = false;
  };
  struct Settings {
    int64_t changed = -1, bytes = 0;  // when the files were, and what was parsed of them
    Json config = Json::object(), environment = Json::object();
  };
  std::optional<Settings> settings_since(int64_t changed) const;
  void read_on(int64_t& work);
  void take(std::string_view line);
  void take_results(const std::string& split, const Json& line);
  std::string state(int64_t updated, int64_t now) const;
  int64_t steps_per_epoch() const;

  std::string id_, path_;
  Progress progress_;
  Settings settings_;
};

}  // namespace ringtape
