#include "train/loop/callback.h"

namespace ringtape {

static std::vector<CallbackEntry>& registered_callbacks() {
  static std::vector<CallbackEntry> all;
  return all;
}
std::span<const CallbackEntry> callbacks() { return registered_callbacks(); }
RegisterCallback::RegisterCallback(const CallbackEntry& entry) { add_entry(registered_callbacks(), entry); }

void visit(Fields& f, CallbackOptions& o) {
  if (callbacks().empty()) return;
  f("callback", o.chosen.names,
    {.help = "code of this program that is called after steps and epochs: names, separated by commas; `list callbacks` "
             "has them",
     .unit = "NAME,...",
     .automatic = "none",
     .selects = true});
}

Callbacks make_callbacks(const CallbackOptions& options) {
  options.chosen.check("callback");
  Callbacks out;
  for (const std::string& name : options.chosen.chosen())
    out.push_back(find_entry(callbacks(), name, "callback").make(options.chosen.settings.of(name)));
  return out;
}

}  // namespace ringtape
