#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

// A run as the page of `ringtape view` asks for it; docs/view.md has the fields. Its files may grow or be replaced
// meanwhile, be copied from another machine or be damaged: what cannot be read is left out, and nothing here throws
// for it. Files of any size need bounded memory.
class ViewedRun {
 public:
  // `id`: its name on the page, unique among the runs shown.
  ViewedRun(std::string id, std::string path) : id_(std::move(id)), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  Json in_list();        // one entry of api/runs
  Json details() const;  // api/run
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
    std::optional<double> images_per_s, ranks;
    std::map<std::string, double> best;  // top-1, by split
    bool has_summary = false;
  };
  struct Settings {
    int64_t changed = -1;  // when config.toml was
    Json config = Json::object(), environment = Json::object();
  };
  void read_on();
  void take(const Json& line);
  void read_settings();
  std::string state(int64_t updated, int64_t now) const;
  int64_t steps_per_epoch() const;

  std::string id_, path_;
  Progress progress_;
  Settings settings_;
};

}  // namespace ringtape
