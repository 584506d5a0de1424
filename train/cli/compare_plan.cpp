#include <algorithm>
#include <set>
#include <sstream>

#include "comm/job/place.h"
#include "core/registry.h"
#include "train/cli/compare.h"

namespace ringtape::cli {
// Options that are set separately for each training.
const std::set<std::string> kOwn = {"run",    "overwrite",          "resume", "seed",       "strategy",
                                    "method", "gather-distributed", "trace",  "trace-step", "json"};

static bool has_setting(const std::string& component, const std::string& name) {
  return std::ranges::any_of(
      train_options(), [&](const Option& option) { return option.name == name && option.group.name == component; });
}

// Whether the option belongs to such components only.
static bool is_of(std::string_view kind, const std::string& name) {
  const Option* const option = find_option(name);
  return option && option->group.kind == kind;
}

Invocation own_flags(Invocation invocation, std::string_view kind, const std::string& name) {
  std::erase_if(invocation.flags,
                [&](const auto& flag) { return is_of(kind, flag.first) && !has_setting(name, flag.first); });
  return invocation;
}

void check_own_flags(const Invocation& invocation, std::string_view kind, const std::vector<std::string>& names) {
  for (const auto& flag : invocation.flags) {
    const auto has = [&](const std::string& name) { return has_setting(name, flag.first); };
    RT_CHECK_AS(UsageError, !is_of(kind, flag.first) || std::ranges::any_of(names, has), "--", flag.first,
                ": none of --", kind == "method" ? "methods" : "strategies", " has this setting");
  }
}

std::vector<std::string> words_of(const std::string& flag, const std::string& list) {
  std::vector<std::string> out;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const bool fresh = !word.empty() && std::find(out.begin(), out.end(), word) == out.end();
    RT_CHECK_AS(UsageError, fresh, "--", flag, " ", list, ": expected different values, separated by commas");
    out.push_back(word);
  }
  RT_CHECK_AS(UsageError, !out.empty(), "--", flag, ": expected at least one");
  return out;
}

std::vector<int64_t> numbers_of(const std::string& flag, const std::string& list, int64_t high) {
  std::vector<int64_t> out;
  for (const std::string& word : words_of(flag, list)) {
    Invocation one;
    one.flags = {{flag, word}};
    out.push_back(number_flag<int64_t>(one, flag, 1, high, 1));
  }
  return out;
}

void Comparison::add(Contender training) {
  RT_CHECK_AS(UsageError, std::ranges::count(trainings, training.name, &Contender::name) == 0,
              "--vary: ", training.name, " is there twice; expected different values");
  trainings.push_back(std::move(training));
}

std::string Comparison::seeds_text() const {
  std::string all;
  for (const std::string& seed : seeds) all += (all.empty() ? "" : ", ") + seed;
  return (seeds.size() > 1 ? "Mean ± standard deviation over the seeds " : "Seed ") + all;
}

std::vector<std::string> strategy_choices() {
  std::vector<std::string> out = find_option("strategy")->info.choices();
  std::erase(out, "auto");
  return out;
}

std::vector<Flag> training_flags() {
  std::vector<Flag> out = option_flags(Use::either);
  std::erase_if(out, [](const Flag& flag) { return kOwn.contains(flag.name); });
  return out;
}

Invocation training_flags(const Invocation& invocation, Use use) {
  Invocation out;
  for (const auto& [name, value] : invocation.flags) {
    const bool without_labels = use == Use::pretrain;
    const Option* const option = find_option(name);
    const bool of_methods = option ? !concerns(name, false) : name == "gather";
    RT_CHECK_AS(UsageError, !of_methods || without_labels, "--", name,
                ": only for self-supervised methods; choose them with --methods");
    RT_CHECK_AS(UsageError, !without_labels || !option || concerns(name, true), "--", name,
                ": only for trainings with labels; leave out --methods");
    if (name == "config" || name == "preset" || (option && !kOwn.contains(name) && name != "devices"))
      out.flags.emplace_back(name, value);
  }
  return out;
}

Comparison comparison_of(const Invocation& invocation, const Otherwise& otherwise) {
  RT_CHECK_AS(UsageError, !comm::place_of_process(),
              "compare: starts the ranks of each training itself; run it without a launcher");
  const auto flag = [&](const char* name, const std::string& fallback) {
    const std::string* const given = invocation.flag(name);
    return given ? *given : fallback;
  };
  Comparison c;
  c.strategies = words_of("strategies", flag("strategies", otherwise.strategies));
  const std::vector<std::string> known = strategy_choices();
  for (const std::string& s : c.strategies) check_known("strategy", s, known, "--strategies: ");
  c.seeds = words_of("seeds", flag("seeds", otherwise.seeds));
  TrainOptions options;
  for (const std::string& seed : c.seeds) set_option(options, "seed", seed, "--seeds");
  c.out = flag("out", otherwise.out);
  c.overwrite = invocation.has("overwrite"), c.json = invocation.has("json");
  c.command = "ringtape";
  for (size_t i = 1; i < invocation.command_line.size(); ++i) c.command += " " + invocation.command_line[i];
  return c;
}

}  // namespace ringtape::cli
