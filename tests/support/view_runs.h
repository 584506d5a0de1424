#pragma once
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/cli_command.h"
#include "train/io/json.h"
#include "train/view/run_list.h"

namespace ringtape {

class ViewTest : public CliTest {
 protected:
  std::string at(const std::string& path) const { return (folder_ / "work" / path).string(); }
  void train(const std::string& name, const std::string& more = "") {
    const CliResult done =
        run("train --data shapes --train-size 96 --val-size 32 --test-size 24 --batch-size 16 --model mlp --hidden 8 "
            "--epochs 3 --log-every 2 --run " +
            name + " " + more);
    ASSERT_EQ(done.code, 0) << done.err;
  }
  // A run's folder with these lines of metrics.
  std::string written(const std::string& name, const std::string& lines, const std::string& host = "") {
    const std::string path = at("runs/" + name);
    fs::create_directories(path);
    write_file(path + "/config.toml", "model = \"mlp\"\nepochs = 4\nbatch-size = 10\nlr = 0.5\nflip = true\n");
    if (!host.empty()) write_file(path + "/env.json", "{\"host\":\"" + host + "\",\"time\":\"2026-01-02T03:04:05Z\"}");
    std::ofstream(path + "/metrics.jsonl") << lines;
    return path;
  }
  // Of the list, which is looked at anew after a while.
  static Json entry(RunList& list, const std::string& id) {
    for (int i = 0; i < 600; ++i) {
      const Json all = parse_json(list.runs());
      for (const Json& run : all["runs"])
        if (run["id"] == Json(id)) return run;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "no run " << id;
    return {};
  }
  static Json part(RunList& list, const std::string& id, int64_t from) {
    return parse_json(list.metrics({{id, from}}))["metrics"][id];
  }
};

}  // namespace ringtape
