// The settings of --vary.
#include <algorithm>
#include <cctype>

#include "train/cli/compare.h"
#include "train/loop/world.h"

namespace ringtape::cli {
namespace {

struct Varied {
  std::string name, values;  // "lr", "1e-3,3e-3"
};

// What has a flag of its own here.
void check_varies(const std::string& name) {
  for (const auto& [setting, flag] : {std::pair("run", "--out"),
                                      {"seed", "--seeds"},
                                      {"strategy", "--strategies"},
                                      {"method", "--methods"},
                                      {"gather-distributed", "--gather"},
                                      {"sync-bn", "--sync-bn"}})
    RT_CHECK_AS(UsageError, name != setting, "--vary ", name, ": use ", flag);
}

// "lr=1e-3,3e-3,hidden=32,128": a word with = begins the values of another setting.
std::vector<Varied> varied(const std::string& list) {
  std::vector<Varied> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size()), equals = list.find('=', at);
    if (equals < end) {
      const std::string typed = list.substr(at, equals - at);
      check_varies(typed);
      std::string name(recorded_option(typed, "--vary").name);
      RT_CHECK_AS(UsageError, std::ranges::count(out, name, &Varied::name) == 0, "--vary ", name, ": given twice");
      out.push_back({std::move(name), list.substr(equals + 1, end - equals - 1)});
    } else {
      RT_CHECK_AS(UsageError, !out.empty(), "--vary ", list, ": expected NAME=VALUE,VALUE, as in lr=1e-3,3e-3");
      out.back().values += concat(",", list.substr(at, end - at));
    }
    at = end + 1;
  }
  return out;
}

}  // namespace

std::vector<Combination> combinations_of(const Invocation& invocation) {
  constexpr size_t kMost = 1000;
  std::vector<Combination> out = {{}};
  const std::string* const list = invocation.flag("vary");
  if (!list) return out;
  for (const auto& [name, values] : varied(*list)) {
    RT_CHECK_AS(UsageError, !invocation.flag(name), "--", name, " and --vary ", name, ": give only one of them");
    std::vector<Combination> more;
    for (const Combination& before : out)
      for (const std::string& value : words_of(concat("vary ", name), values)) {
        more.push_back(before);
        more.back().emplace_back(name, value);
      }
    out = std::move(more);
    RT_CHECK_AS(UsageError, out.size() <= kMost, "--vary: more than ", kMost, " combinations; vary fewer settings");
  }
  return out;
}

Invocation with(Invocation flags, const Combination& settings) {
  flags.flags.insert(flags.flags.end(), settings.begin(), settings.end());
  return flags;
}

TrainOptions checked_options(const Contender& training, const Combination& settings, std::optional<int> ranks) {
  try {
    TrainOptions options = options_of(training), on_cpu = options;
    on_cpu.execution.device = "cpu";  // each training chooses its own device
    (void)resolve(std::move(on_cpu), ranks.value_or(wants_ranks(options.parallel) ? int(options.parallel.devices) : 1));
    return options;
  } catch (const UsageError& e) {
    if (settings.empty()) throw;
    throw UsageError(concat("--vary: ", settings_text(settings), ": ", e.what()));
  }
}

Combination values_in(const TrainOptions& options, Combination settings) {
  for (auto& [name, text] : settings) text = option_text(options, name).value_or(text);
  return settings;
}

std::string folder_of(const Combination& settings) {
  std::string out;
  for (const auto& [name, text] : settings) {
    out += name + "-";
    for (const char c : text)
      out += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '+' ? c : '-';
    out += "-";
  }
  return out;
}

std::string varied_names(const Combination& settings) {
  std::string out;
  for (const auto& [name, text] : settings) out += name + "-";
  return out;
}

}  // namespace ringtape::cli
