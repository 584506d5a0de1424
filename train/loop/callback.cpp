#include "train/loop/callback.h"

#include <algorithm>
#include <sstream>

namespace ringtape {

static std::vector<CallbackEntry>& registered_callbacks() {
  static std::vector<CallbackEntry> all;
  return all;
}
std::span<const CallbackEntry> callbacks() { return registered_callbacks(); }
RegisterCallback::RegisterCallback(const CallbackEntry& entry) { add_entry(registered_callbacks(), entry); }

std::vector<std::string> CallbackOptions::chosen() const {
  std::vector<std::string> out;
  if (names.empty()) return out;
  std::istringstream in(names + ',');
  for (std::string name; std::getline(in, name, ',');) out.push_back(name);
  return out;
}

void check_callbacks(const CallbackOptions& options) {
  const std::vector<std::string> chosen = options.chosen();
  for (const std::string& name : chosen) {
    find_entry(callbacks(), name, "callback", "--callback: ");
    RT_CHECK_AS(UsageError, std::ranges::count(chosen, name) == 1, "--callback: ", name, " is given twice");
  }
}

void visit(Fields& f, CallbackOptions& o) {
  if (callbacks().empty()) return;
  f("callback", o.names,
    {.help = "code of this program that is called after steps and epochs: names, separated by commas; `list callbacks` "
             "has them",
     .unit = "NAME,...",
     .automatic = "none",
     .selects = true});
}

Callbacks make_callbacks(const CallbackOptions& options) {
  check_callbacks(options);
  Callbacks out;
  for (const std::string& name : options.chosen())
    out.push_back(find_entry(callbacks(), name, "callback", "--callback: ").make(options.settings.of(name)));
  return out;
}

}  // namespace ringtape
