#include "train/run/run_options.h"

namespace ringtape {

void visit(Fields& f, RunOptions& o) {
  f("run", o.name,
    {.help = "run directory: a name below runs/, or a path with a /",
     .unit = "NAME",
     .automatic = "MODEL-DATA-TIME",
     .scope = FieldScope::invocation});
  f("overwrite", o.overwrite, {.help = "replace an earlier run of the same name", .scope = FieldScope::invocation});
  f("resume", o.resume,
    {.help = "resume the run of the same name from its newest checkpoint; start it if there is none",
     .scope = FieldScope::invocation});
  f("log-every", o.log_every,
    {.help = "steps between lines of metrics within an epoch; 0: none",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("snapshots", o.snapshots,
    {.help = "snapshots for `ringtape view` at most, of what the network makes of some images, besides those after the "
             "first epoch and the test; 0: none",
     .unit = "N",
     .range = {0, 1000},
     .may_change = true});
  f("on-save", o.on_save,
    {.help = "command that gets the path of each finished checkpoint, snapshot and export, in place of {} or as its "
             "last word, while the training goes on; without a shell",
     .unit = "COMMAND",
     .automatic = "RINGTAPE_ON_SAVE, else none",
     .may_change = true});
  f("on-save-timeout", o.on_save_timeout,
    {.help = "seconds after which such a call is ended and repeated",
     .unit = "X",
     .range = kAboveZero,
     .may_change = true});
  f("json", o.json,
    {.help = "print results as JSON lines instead of text", .scope = FieldScope::invocation, .evaluates = true});
}

}  // namespace ringtape
