#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "comm/launch/launch.h"
#include "core/printable.h"
#include "train/cli/compare.h"
#include "train/compare/child_run.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/view/report.h"

namespace ringtape::cli {
namespace {

namespace fs = std::filesystem;

struct Run {
  std::string name, path, log;
  std::vector<std::string> command;
};

Run run_of(const Comparison& c, const Contender& training, const std::string& seed) {
  const std::string name = concat(training.name, "-seed-", seed);
  Run r{name, concat(c.out, "/", name), concat(c.out, "/logs/", name, ".log"), {}};
  r.command = {training.use == Use::pretrain ? "pretrain" : "train"};
  for (const auto& [flag, value] : training.flags.flags) r.command.push_back(concat("--", flag, "=", value));
  for (const std::string& own :
       {concat("--seed=", seed), concat("--run=", r.path), std::string(c.overwrite ? "--overwrite" : "--resume")})
    r.command.push_back(own);
  return r;
}

// The options that the flags ask for, given those of the existing run. A preset of methods also sets all options that
// it does not name to their defaults.
TrainOptions wanted_options(const Contender& training, const Given& config, const TrainOptions& there) {
  TrainOptions out;
  if (training.use == Use::pretrain) out = options_of(training);
  else apply_flags(out, training.flags, {config, recipe_of(training.flags, training.use)});
  if (out.trainer.batch_size_per_rank > 0) out.trainer.batch_size = there.trainer.batch_size;
  out.execution.seed = there.execution.seed;  // the seed in the run's name
  if (out.execution.precision.empty()) out.execution.precision = there.execution.precision;
  return out;
}

// The results of the run; nothing if it must be started or resumed. Throws UsageError if the existing run has other
// settings.
std::optional<FinishedRun> finished(const Comparison& c, const Contender& training, const Run& r,
                                    const std::string& seed) {
  if (c.overwrite || !is_there(r.path + "/config.toml")) return {};
  TrainOptions there;
  const Given config = read_config(r.path + "/config.toml");
  apply_settings(there, {config});
  const TrainOptions now = wanted_options(training, config, there);
  check_same_settings(now, there, r.path, "choose another --out, or --overwrite");
  std::optional<FinishedRun> out = read_finished_run(r.path);
  const bool whole = out && (out->epochs == now.trainer.epochs || out->ended_early);
  if (!whole || now.limits != there.limits) return {};
  RT_CHECK_AS(FormatError, out->name.empty() || out->name == r.name, r.path, "/metrics.jsonl: belongs to the run ",
              printable(out->name), "; bring the file back, or remove the run's folder to train it again");
  RT_CHECK_AS(UsageError, std::to_string(out->seed) == seed, r.path, ": a run with seed ", out->seed,
              "; choose another --out");
  return out;
}

// The error of a failed training: the first error line in its log.
std::string error_of(const std::string& log) {
  constexpr std::string_view kError = "ringtape: error: ";
  std::istringstream lines(read_file(log));
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(kError); at != std::string::npos) return line.substr(at + kError.size());
  return "it reported no error";
}

void say(const Comparison& c, const std::string& line) {
  if (c.json) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Returns zero, or the exit code of a run that a signal stopped. Throws if the run failed.
int run_one(const Comparison& c, const Run& r) {
  fs::create_directories(c.out + "/logs");
  fs::remove(r.log);
  const int code = run_child(r.command, r.log, [&](const std::string& line) {
    if (line.starts_with("epoch ")) say(c, "  " + line);
  });
  if (code == 0 || code == comm::kPreempted) return code;
  const std::string cause = code > 128 ? concat("ended by signal ", code - 128) : error_of(r.log);
  const std::string message = concat(r.name, ": ", cause, "; its complete output is in ", r.log);
  if (code == 2) throw UsageError(message);
  if (code == 3) throw OutOfMemory(message);
  throw Error(message);
}

}  // namespace

TrainOptions options_of(const Contender& training) {
  TrainOptions out;
  apply_flags(out, training.flags, {recipe_of(training.flags, training.use)});
  return out;
}

TrainedRuns train_all(const Comparison& c) {
  TrainedRuns out;
  out.runs.resize(c.trainings.size());
  size_t number = 0;
  for (const std::string& seed : c.seeds)  // trainings alternate, so that other load on the machine affects all of them
    for (size_t i = 0; i < c.trainings.size(); ++i) {
      const Run r = run_of(c, c.trainings[i], seed);
      std::optional<FinishedRun> done = finished(c, c.trainings[i], r, seed);
      say(c, fmt::format("[{}/{}] {}{}", ++number, c.trainings.size() * c.seeds.size(), r.name,
                         done ? ": already finished" : ""));
      if (!done) {
        try {
          out.stopped = run_one(c, r);
        } catch (const OutOfMemory& e) {
          say(c, concat("  does not fit: ", e.what()));
          if (!c.measures) out.failures.push_back(e.what());
          continue;
        } catch (const Error& e) {
          const bool first = std::ranges::all_of(out.runs, &std::vector<FinishedRun>::empty);
          if (first && dynamic_cast<const UsageError*>(&e)) throw;
          say(c, concat("  failed: ", e.what()));
          out.failures.push_back(e.what());
          continue;
        }
        if (out.stopped) {
          say(c, "stopped by a signal; the same command continues");
          return out;
        }
        done = read_finished_run(r.path);
        if (c.measures) fs::remove_all(r.path + "/exported");
      }
      RT_CHECK_AS(Error, done, r.path, ": the training ended without a summary");
      out.runs[i].push_back(std::move(*done));
    }
  if (std::ranges::all_of(out.runs, &std::vector<FinishedRun>::empty)) out.check();
  return out;
}

void TrainedRuns::check() const {
  if (failures.empty()) return;
  throw Error(failures.size() == 1 ? failures[0]
                                   : concat(failures.size(), " trainings failed; the first: ", failures[0]));
}

std::string TrainedRuns::note() const {
  std::string out;
  for (const std::string& each : failures) out += concat(out.empty() ? " Failed: " : "; ", each);
  return out.empty() ? "" : out + ".";
}

void write_findings(const Comparison& c, const Findings& f, const std::string& key, Json rows) {
  Json json{{"title", f.title}, {"command", c.command}};
  json.update(rows);
  const bool drawn = !f.plot.empty();
  const std::string table = f.table.markdown();
  const std::string page = concat("# ", f.title, "\n\n", table, "\n", f.notes, "\n\n    ", c.command, "\n",
                                  drawn ? "\n![by epoch](compare.svg)\n" : "");
  write_file(c.out + "/compare.md", page);
  write_file(c.out + "/compare.json", json.text(2) + "\n");
  write_file(c.out + "/compare.csv", flat_table(json[key]).csv());
  if (drawn) write_file(c.out + "/compare.svg", f.plot);
  if (c.json) std::printf("%s\n", json.text().c_str());
  say(c, concat("\n", table, "\n", f.notes, "\nwrote ", c.out, "/compare.md, compare.csv",
                drawn ? concat(", compare.json, compare.svg and ", kReport) : " and compare.json"));
  if (!drawn) return;
  std::vector<std::string> runs;
  for (const Contender& training : c.trainings)
    for (const std::string& seed : c.seeds)
      if (const std::string path = run_of(c, training, seed).path; is_there(path + "/metrics.jsonl"))
        runs.push_back(path);
  Json comparison{{"title", f.title}, {"notes", f.notes}};
  comparison.update(f.table.json());
  write_report(concat(c.out, "/", kReport), runs, comparison);
}

std::string title_of(const TrainOptions& o) {
  return fmt::format("{} on {}, {} {}", o.model.name, o.data.set.name, o.trainer.epochs,
                     o.trainer.epochs == 1 ? "epoch" : "epochs");
}

}  // namespace ringtape::cli
