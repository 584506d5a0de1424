#include "train/run/earlier_steps.h"

#include <cinttypes>
#include <sstream>

#include "core/check.h"
#include "train/io/file.h"
#include "train/io/look.h"
#include "train/run/metrics_log.h"

namespace ringtape {

std::string sign_of_checkpoints(const RunDir& run, const CheckpointOptions& due, int64_t steps_per_epoch) {
  if (run.has_had_checkpoint()) return "this run has saved one before";
  // No checkpoint is written within an epoch at its last step.
  const bool within = due.steps > 0 && steps_per_epoch > 0 && due.steps % steps_per_epoch != 0;
  for (const auto& [name, columns] :
       {std::pair{kJsonl, "{\"split\":\"%*[^\"]\",\"epoch\":%" SCNd64 ",\"step\":%" SCNd64},
        {kCsv, "%*[^,],%" SCNd64 ",%" SCNd64}}) {
    const std::string path = run.file(name);
    if (!is_there(path)) continue;
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("{\"split\":\"summary\"")) return concat(path, " has the results of a finished training");
      int64_t epoch = 0, step = 0;
      if (std::sscanf(line.c_str(), columns, &epoch, &step) != 2) continue;
      if ((due.every > 0 && epoch > due.every) || (within && step > due.steps))
        return concat(path, " has epoch ", epoch, ", step ", step);
    }
  }
  return {};
}

}  // namespace ringtape
