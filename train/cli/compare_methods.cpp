#include <algorithm>

#include "core/registry.h"
#include "nn/ssl/method.h"
#include "train/cli/compare.h"
#include "train/compare/plot.h"
#include "train/io/json.h"

namespace ringtape::cli {
namespace {

// The requested states of a switch, on before off.
std::vector<bool> states_of(const Invocation& invocation, const char* name, const std::string& fallback) {
  const std::string text = invocation.flag(name) ? *invocation.flag(name) : fallback;
  if (text == "both") return {true, false};
  if (text == "on" || text == "true") return {true};
  if (text == "off" || text == "false") return {false};
  throw UsageError(concat("--", name, ": expected on, off or both, got '", text, "'"));
}

// The methods of --methods; "all" means those that the preset has a recipe for.
std::vector<std::string> methods_of(const Invocation& invocation) {
  std::vector<std::string> all = names_of(nn::methods());
  const std::string& list = *invocation.flag("methods");
  if (list == "all") {
    if (const std::string* const preset = invocation.flag("preset"))
      std::erase_if(all, [&](const std::string& method) { return !has_recipe(*preset, method); });
    return all;
  }
  const std::vector<std::string> out = words_of("methods", list);
  for (const std::string& method : out) check_known("method", method, all, "--methods: ");
  return out;
}

// A row of the table and the index of its group of rows.
struct Row {
  ComparedMethod compared;
  size_t group;
};

bool has_ranks(const std::string& strategy) { return find_strategy(strategy).starts_ranks(); }

// Sorted by method, so that runs whose times are compared follow each other; each row with each combination.
std::vector<Row> rows_of(const Invocation& invocation, const Comparison& c, const std::vector<std::string>& methods,
                         const std::vector<Combination>& combinations, int64_t devices) {
  const std::vector<bool> sync_bn = states_of(invocation, "sync-bn", "both"),
                          gather = states_of(invocation, "gather", "on"), off = {false};
  std::vector<Row> out;
  for (const std::string& method : methods)
    for (size_t i = 0; i < c.strategies.size(); ++i) {
      const std::string& strategy = c.strategies[i];
      const StrategyEntry& entry = find_strategy(strategy);
      const std::vector<bool>& syncs = entry.synchronizes() && !entry.one_device() ? sync_bn : off;
      const bool gathers = entry.starts_ranks() && nn::find_method(method).gathers();
      for (size_t j = 0; j < syncs.size(); ++j)
        for (size_t k = 0; k < (gathers ? gather.size() : 1); ++k) {
          ComparedMethod row{method, {strategy, entry.one_device() ? 1 : devices, {}}, syncs[j]};
          if (gathers) row.gather = gather[k];
          for (const Combination& settings : combinations) {
            row.under.settings = settings;
            out.push_back({row, 4 * i + 2 * j + k});
          }
        }
    }
  return out;
}

// Throws UsageError for switches that apply to none of the trainings.
void check_switches(const Invocation& invocation, const Comparison& c, const std::vector<std::string>& methods,
                    int64_t devices) {
  const auto& given = c.strategies;
  const bool ranks = std::ranges::any_of(given, has_ranks), dp = std::ranges::count(given, "dp") > 0;
  const auto wants = [&](const char* name) { return invocation.flag(name) && states_of(invocation, name, "")[0]; };
  RT_CHECK_AS(UsageError, devices > 1 || given == std::vector<std::string>{"single"}, "--devices ", devices,
              ": --strategies other than single need 2 or more");
  RT_CHECK_AS(UsageError, !wants("sync-bn") || ranks || dp,
              "--sync-bn: needs ddp or dp, but --strategies has neither; leave it out, or add one of them");
  RT_CHECK_AS(UsageError, !wants("gather") || ranks,
              "--gather: needs ddp, but --strategies does not have it; leave it out, or add ddp");
  const auto gathers = [](const std::string& method) { return nn::find_method(method).gathers(); };
  RT_CHECK_AS(UsageError, !wants("gather") || std::any_of(methods.begin(), methods.end(), gathers),
              "--gather: none of these methods supports it; leave it out");
}

// Throws UsageError for a setting that varies but that one of the methods does not have.
void check_varies(const Combination& settings, const std::vector<std::string>& methods) {
  for (const auto& setting : settings)
    for (const std::string& method : methods) {
      Invocation one;
      one.flags = {setting};
      RT_CHECK_AS(UsageError, !own_flags(one, "method", method).flags.empty(), "--vary ", setting.first, ": ", method,
                  " does not have this setting; leave the method out");
    }
}

// Reads only these flags: others may depend on a method's preset, which has not been read yet.
int64_t devices_of(const Invocation& invocation) {
  Invocation where;
  for (const auto& flag : invocation.flags)
    if (flag.first == "devices" || flag.first == "config") where.flags.push_back(flag);
  TrainOptions out;
  apply_flags(out, where);
  return out.parallel.devices;
}

// Writes the values of the row's settings as its run has them.
Contender training_of(ComparedMethod& row, const Invocation& common) {
  const Invocation whole = own_flags(with(common, row.under.settings), "method", row.method);
  Contender out{"", Use::pretrain, own_flags(whole, "strategy", row.under.name)};
  const auto word = [](bool on) { return on ? "true" : "false"; };
  auto& flags = out.flags.flags;
  flags.emplace_back("method", row.method);
  flags.emplace_back("strategy", row.under.name), flags.emplace_back("devices", std::to_string(row.under.devices));
  flags.emplace_back("sync-bn", word(row.sync_bn));
  if (nn::find_method(row.method).gathers()) flags.emplace_back("gather-distributed", word(row.gather.value_or(false)));
  row.under.settings = values_in(checked_options(out, row.under.settings), row.under.settings);
  out.name = folder_of(row.under.settings) + row.name();
  return out;
}

std::string notes_of(const Comparison& c, const std::vector<ComparedMethod>& all) {
  return concat(c.seeds_text(), ". Accuracy: ", protocol_of(all),
                ". Time: training and kNN, all epochs; per epoch: training only. ",
                "Speed-up: time of the same method with single, divided by this time. ",
                "Peak: memory of tensors, maximum over the devices. Gather -: not supported by the method.");
}

}  // namespace

int compare_methods(const Invocation& invocation) {
  Invocation asked = invocation;
  std::erase_if(asked.flags, [](const auto& flag) { return flag.first == "sync-bn"; });
  const int64_t devices = devices_of(asked);
  const Invocation common = training_flags(asked, Use::pretrain);
  const std::vector<std::string> methods = methods_of(invocation);
  check_own_flags(asked, "method", methods);
  const std::vector<Combination> combinations = combinations_of(invocation);
  check_varies(combinations[0], methods);
  Comparison c = comparison_of(invocation, {"single,ddp", "0", ""});
  check_own_flags(asked, "strategy", c.strategies);
  check_switches(invocation, c, methods, devices);
  std::vector<Row> rows = rows_of(invocation, c, methods, combinations, devices);
  for (Row& row : rows) c.add(training_of(row.compared, common));
  const TrainOptions options = options_of(c.trainings[0]);
  if (c.out.empty())
    c.out =
        concat("runs/compare-methods-", varied_names(combinations[0]), options.model.name, "-", options.data.set.name);
  TrainedRuns trained = train_all(c);
  if (trained.stopped) return trained.stopped;
  for (size_t i = 0; i < rows.size(); ++i) rows[i].compared.under.runs = std::move(trained.runs[i]);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.group < b.group; });
  std::vector<ComparedMethod> all;
  for (Row& row : rows)
    if (!row.compared.under.runs.empty()) all.push_back(std::move(row.compared));
  const std::string title = title_of(options);
  write_findings(c, {title, methods_table(all), concat(notes_of(c, all), trained.note()), methods_plot(all, title)},
                 "methods", {{"protocol", protocol_of(all)}, {"methods", methods_json(all)}});
  trained.check();
  return 0;
}

}  // namespace ringtape::cli
