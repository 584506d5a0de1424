#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>

#include "comm/launch/launch.h"
#include "comm/place.h"
#include "train/cli/compare.h"
#include "train/compare/child_run.h"
#include "train/compare/plot.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/run/stop.h"
#include "train/suggest.h"

namespace ringtape::cli {
namespace {

namespace fs = std::filesystem;

// Options of a training that are not for all of them alike.
const std::set<std::string> kOwn = {"run", "overwrite", "resume", "seed", "strategy", "trace", "trace-step", "json"};

std::vector<std::string> strategy_choices() {
  for (const Option& option : train_options())
    if (option.name == std::string("strategy")) {
      std::vector<std::string> out = option.choices();
      std::erase(out, "auto");
      return out;
    }
  return {};
}

// Those of the usual three that there are.
std::string default_strategies() {
  std::string out;
  const std::vector<std::string> known = strategy_choices();
  for (const char* name : {"single", "dp", "ddp"})
    if (std::find(known.begin(), known.end(), name) != known.end()) out += concat(out.empty() ? "" : ",", name);
  return out;
}

struct Plan {
  TrainOptions options;               // of all runs alike
  std::vector<std::string> flags;     // that ask for them
  std::vector<std::string> strategies;
  std::vector<std::string> seeds;
  std::string out;                    // folder
  bool overwrite = false, json = false;
};

Plan plan_of(const Invocation& invocation) {
  Plan p;
  apply_flags(p.options, invocation);
  for (const auto& [name, value] : invocation.flags) {
    const auto options = train_options();
    const bool trains = name == "config" || std::any_of(options.begin(), options.end(), [&](const Option& o) { return o.name == name; });
    if (trains && !kOwn.contains(name) && name != "devices") p.flags.push_back(concat("--", name, "=", value));
  }
  const auto flag = [&](const char* name, const std::string& fallback) {
    const std::string* const given = invocation.flag(name);
    return given ? *given : fallback;
  };
  p.strategies = words_of("strategies", flag("strategies", default_strategies()));
  p.seeds = words_of("seeds", flag("seeds", "2,4,42"));
  const std::vector<std::string> known = strategy_choices();
  for (const std::string& s : p.strategies)
    if (std::find(known.begin(), known.end(), s) == known.end()) throw UsageError("--strategies: " + unknown("strategy", s, known));
  for (const Option& option : train_options())
    for (const std::string& seed : p.seeds)
      if (option.name == std::string("seed")) set_option(p.options, option, seed, "--seeds");
  p.out = flag("out", concat("runs/compare-", p.options.model, "-", p.options.data));
  p.overwrite = invocation.has("overwrite"), p.json = invocation.has("json");
  return p;
}

struct Run {
  std::string name, path, log;
  std::vector<std::string> command;
};

Run run_of(const Plan& p, const std::string& strategy, int64_t devices, const std::string& seed) {
  Run r;
  r.name = concat(strategy, "-", devices, "-seed-", seed);
  r.path = concat(p.out, "/", r.name);
  r.log = concat(p.out, "/logs/", r.name, ".log");
  r.command = {"train"};
  r.command.insert(r.command.end(), p.flags.begin(), p.flags.end());
  const std::vector<std::string> own = {concat("--strategy=", strategy), concat("--devices=", devices), concat("--seed=", seed),
                                        concat("--run=", r.path), p.overwrite ? "--overwrite" : "--resume"};
  r.command.insert(r.command.end(), own.begin(), own.end());
  return r;
}

// Nothing if it is yet to be run, or to be run on. Throws UsageError where the run that is there is of other settings.
std::optional<FinishedRun> finished(const Plan& p, const Run& r, const Invocation& invocation, const std::string& seed) {
  if (p.overwrite || !fs::exists(r.path + "/config.toml")) return {};
  TrainOptions there;
  read_config(there, r.path + "/config.toml");
  TrainOptions now = there;
  apply_flags(now, invocation);
  now.seed = there.seed;  // that of its name
  check_same_settings(now, there, r.path, "choose another --out, or --overwrite");
  std::optional<FinishedRun> out = read_finished_run(r.path);
  if (!out || out->epochs != now.epochs) return {};
  RT_CHECK_AS(UsageError, std::to_string(out->seed) == seed, r.path, ": a run with seed ", out->seed, "; choose another --out");
  return out;
}

// The error that a training has ended with: the first line that says so.
std::string error_of(const std::string& log) {
  constexpr std::string_view kError = "ringtape: error: ";
  std::istringstream lines(read_file(log));
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(kError); at != std::string::npos) return line.substr(at + kError.size());
  return "no error was said";
}

void say(const Plan& p, const std::string& line) {
  if (p.json) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Zero, or the exit code with which the run was stopped. Throws if it failed.
int run_one(const Plan& p, const Run& r) {
  fs::create_directories(p.out + "/logs");
  fs::remove(r.log);
  const int code = run_child(r.command, r.log, [&](const std::string& line) {
    if (line.starts_with("epoch ")) say(p, "  " + line);
  });
  if (code == 0 || code == comm::kPreempted) return code;
  const std::string cause = code > 128 ? concat("ended by signal ", code - 128) : error_of(r.log);
  const std::string message = concat(r.name, ": ", cause, "; all it wrote is in ", r.log);
  if (code == 2) throw UsageError(message);
  if (code == 3) throw OutOfMemory(message);
  throw Error(message);
}

std::string title_of(const Plan& p) {
  return fmt::format("{} on {}, {} {}", p.options.model, p.options.data, p.options.epochs, p.options.epochs == 1 ? "epoch" : "epochs");
}

void write_comparison(const Plan& p, const std::vector<ComparedStrategy>& all, const Invocation& invocation) {
  std::string seeds, command = "ringtape";
  for (const std::string& seed : p.seeds) seeds += (seeds.empty() ? "" : ", ") + seed;
  for (size_t i = 1; i < invocation.command_line.size(); ++i) command += " " + invocation.command_line[i];
  const std::string table = comparison_table(all);
  const std::string notes = concat(p.seeds.size() > 1 ? "Mean ± standard deviation over the seeds " : "Seed ", seeds,
                                   ". Speed-up: images/s beside the first row. Peak: of tensors, the largest of the devices. ",
                                   "Sent: what a rank gives to all-reduce, or dp's devices to each other. ",
                                   "Hidden: of the time that takes, what rank 0 did not stand still for.");
  const nlohmann::ordered_json json{{"title", title_of(p)}, {"command", command}, {"strategies", comparison_json(all)}};
  const std::string page = concat("# ", title_of(p), "\n\n", table, "\n", notes, "\n\n    ", command, "\n\n![by epoch](compare.svg)\n");
  write_file(p.out + "/compare.md", page);
  write_file(p.out + "/compare.json", json_text(json, 2) + "\n");
  write_file(p.out + "/compare.svg", comparison_plot(all, title_of(p)));
  if (p.json) std::printf("%s\n", json_text(json).c_str());
  say(p, concat("\n", table, "\n", notes, "\nwrote ", p.out, "/compare.md, compare.json and compare.svg"));
}

int run(const Invocation& invocation) {
  if (invocation.has("inference")) return compare_inference(invocation);
  hold_stops();
  const Plan p = plan_of(invocation);
  RT_CHECK_AS(UsageError, !comm::place_of_process(), "compare: starts the ranks of each training itself; run it without a launcher");
  std::vector<ComparedStrategy> all;
  for (const std::string& strategy : p.strategies)
    all.push_back(ComparedStrategy{strategy, strategy == "single" ? 1 : p.options.devices, {}});
  size_t number = 0;
  for (const std::string& seed : p.seeds)  // strategies take turns, so that what else the machine does meets all of them
    for (ComparedStrategy& row : all) {
      const Run r = run_of(p, row.name, row.devices, seed);
      std::optional<FinishedRun> done = finished(p, r, invocation, seed);
      say(p, fmt::format("[{}/{}] {}{}", ++number, p.strategies.size() * p.seeds.size(), r.name, done ? ": has been run" : ""));
      if (!done) {
        if (const int code = run_one(p, r)) {
          say(p, "stopped by a signal; the same command goes on from there");
          return code;
        }
        done = read_finished_run(r.path);
      }
      RT_CHECK_AS(Error, done, r.path, ": the training has ended without a summary");
      row.runs.push_back(std::move(*done));
    }
  write_comparison(p, all, invocation);
  return 0;
}

}  // namespace

std::vector<std::string> words_of(const std::string& flag, const std::string& list) {
  std::vector<std::string> out;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const bool fresh = !word.empty() && std::find(out.begin(), out.end(), word) == out.end();
    RT_CHECK_AS(UsageError, fresh, "--", flag, " ", list, ": expected different ones with commas between them");
    out.push_back(word);
  }
  RT_CHECK_AS(UsageError, !out.empty(), "--", flag, ": expected at least one");
  return out;
}

Command compare_command() {
  Command command;
  command.name = "compare";
  command.summary = "Trains the same under several strategies and seeds, one after the other, and prints the table.";
  command.usage = "[FLAGS]";
  command.examples = {"compare --devices 2 --strategies single,ddp --seeds 2,4,42",
                      "compare --model resnet18 --data cifar10 --data-dir DIR --devices 2 --epochs 10",
                      "compare --config configs/cifar100_resnet18.toml --data-dir DIR --devices 2 --out results",
                      "compare --inference --model fashion_cnn --devices 2"};
  command.flags = {{"Comparison", "strategies", "LIST", "with commas between them:", default_strategies()},
                   {"Comparison", "seeds", "LIST", "each strategy is trained once with each", "2,4,42"},
                   {"Comparison", "out", "DIR", "gets compare.md, .json and .svg, logs/ and a run a training", "runs/compare-MODEL-DATA"},
                   {"Comparison", "overwrite", "", "train all again; otherwise what has been run is taken as it is", ""},
                   {"Comparison", "json", "", "print compare.json instead of text", ""},
                   {"Inference", "inference", "", "time forward passes instead: one device beside dp, by batch size", ""},
                   {"Inference", "batch-sizes", "LIST", "images of a pass", "1,4,16,64,256"}};
  for (const std::string& name : strategy_choices()) command.flags[0].help += " " + name;
  for (Flag& flag : option_flags(Use::train))
    if (!kOwn.contains(flag.name)) command.flags.push_back(std::move(flag));
  command.flags.push_back({"Run", "config", "FILE", "TOML file of the settings above, a line each", ""});
  command.run = run;
  return command;
}

}  // namespace ringtape::cli
