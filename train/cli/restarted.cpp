#include "train/cli/restarted.h"

#include <cstdlib>

#include "comm/job/place.h"
#include "core/check.h"
#include "train/io/look.h"
#include "train/run/run_dir.h"

namespace ringtape::cli {
static std::optional<int> restarts(const Invocation& invocation) {
  return comm::restarts_of_process(invocation.has("elastic"));
}

// torchrun's limit of restarts is no secret to its processes.
static bool may_restart() {
  const char* const limit = std::getenv("TORCHELASTIC_MAX_RESTARTS");
  return limit && std::atoi(limit) > 0;
}

Invocation of_this_attempt(Invocation invocation, std::vector<std::string>& notes) {
  const auto count = restarts(invocation);
  const bool replaces = invocation.has("overwrite");
  if (!count || invocation.has("resume")) return invocation;
  if (*count == 0 && !replaces && may_restart())
    notes.emplace_back(
        "torchrun may restart this training, which then ends or begins anew: with --run NAME --resume "
        "it goes on from its newest checkpoint");
  const std::string* const run = invocation.flag("run");
  const std::string path = run ? run_path(*run) : "";
  if (*count == 0 || path.empty() || !is_there(path + "/config.toml")) return invocation;
  RT_CHECK_AS(UsageError, replaces, "--run ", path, ": holds a run already, and this is restart ", *count,
              " of the job: give --resume, with which the first attempt begins the run and each restart goes on");
  if (is_to_be_replaced(path)) return invocation;
  notes.push_back(
      concat("restart ", *count, ": goes on with ", path, " as with --resume; --overwrite was for the first attempt"));
  std::erase_if(invocation.flags, [](const auto& flag) { return flag.first == "overwrite"; });
  invocation.flags.emplace_back("resume", "true");
  return invocation;
}

void note_what_is_replaced(const Invocation& invocation) {
  if (const std::string* const run = invocation.flag("run"); run && invocation.has("overwrite") && restarts(invocation))
    note_replacement(run_path(*run));
}

}  // namespace ringtape::cli
