#include <algorithm>
#include <cmath>
#include <map>

#include "train/cli/training_run.h"
#include "train/io/json.h"
#include "train/run/metrics_log.h"
#include "train/run/run_dir.h"

namespace ringtape::cli {
namespace {

// Sums over the epochs of a run.
struct Sums {
  double images = 0, seconds = 0, peak = 0, sent = 0, sending = 0, exposed = 0;
};

Sums sums_of(const std::vector<Metrics>& all) {
  Sums out;
  for (const Metrics& m : all) {
    out.peak = std::max(out.peak, m.peak_bytes.value_or(0));
    out.sent += m.comm_bytes.value_or(0), out.sending += m.comm_s.value_or(0), out.exposed += m.exposed_s.value_or(0);
    if (m.split != "train") continue;
    out.images += m.images_per_s.value_or(0) * m.seconds.value_or(0), out.seconds += m.seconds.value_or(0);
  }
  return out;
}

// The result, if it is not missing in metrics.jsonl, and the last losses and accuracies.
void add_results(Json& out, const RunSetup& setup, const Learner& learner, const std::vector<Metrics>& all) {
  std::map<std::string, const Metrics*> last;
  for (const Metrics& m : all) last[m.split] = &m;
  if (const auto at = last.find(learner.facts.final_split); at != last.end()) {
    const Metrics& test = *at->second;
    if (test.loss) out["loss"] = json_number(*test.loss);
    out["top1"] = json_number(test.top1.value_or(std::nan(""))),
    out["top5"] = json_number(test.top5.value_or(std::nan("")));
    if (test.balanced) out["balanced_accuracy"] = json_number(*test.balanced);
    learner.describe(out, eval_options(setup.options), all);
  }
  for (const char* split : {"train", "val"})
    if (const auto at = last.find(split); at != last.end()) {
      if (at->second->loss) out[concat(split, "_loss")] = json_number(*at->second->loss);
      if (at->second->top1) out[concat(split, "_top1")] = json_number(*at->second->top1);
    }
}

}  // namespace

Json run_summary(const RunSetup& setup, const Trainer& trainer, const RunDir& run, const std::vector<Metrics>& all,
                 int ranks, double seconds) {
  const TrainOptions& o = setup.options;
  Json out{{"split", "summary"}, {"epoch", trainer.epochs_begun()}, {"step", trainer.steps()}};
  if (!trainer.ended_by().empty()) out["ended_by"] = trainer.ended_by();
  add_results(out, setup, trainer.learner(), all);
  const Sums sums = sums_of(all);
  out["images_per_s"] = sums.seconds > 0 ? sums.images / sums.seconds : 0;
  out["seconds"] = seconds;
  out["peak_bytes"] = int64_t(sums.peak), out["state_bytes"] = trainer.memory().state;
  if (const int64_t process = trainer.memory().process) out["process_bytes"] = process;
  out["parameters"] = nn::count_parameters(*setup.model);
  out["model"] = o.model.name, out["data"] = o.data.set.name;
  out["seed"] = o.execution.seed, out["deterministic"] = o.execution.deterministic, out["ranks"] = ranks;
  if (sums.sent > 0) out["comm_bytes"] = int64_t(sums.sent);
  if (sums.sending > 0) out["comm_s"] = sums.sending, out["exposed_s"] = sums.exposed;
  out["train_s"] = sums.seconds;
  if (o.checkpoint.exported == "best") out["exported_step"] = trainer.state().best->step;
  out["run"] = run.path();
  return out;
}

}  // namespace ringtape::cli
