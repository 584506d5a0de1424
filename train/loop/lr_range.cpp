#include "train/loop/lr_range.h"

#include <cmath>

#include "nn/mode_guard.h"

namespace ringtape {

std::vector<LrPoint> test_lrs(const Training& parts, const LrRange& range) {
  constexpr double kDecay = 0.98, kDiverged = 3;  // times the lowest loss, above it
  const nn::ModeGuard mode(*parts.task.model, true);
  std::vector<LrPoint> out;
  std::optional<Loader::Epoch> batches;
  int64_t epoch = -1;
  double average = 0, decayed = 1, lowest = 0;
  for (int64_t i = 0; i < range.steps; ++i) {
    const Batch* batch = batches ? batches->next() : nullptr;
    if (!batch) batches.emplace(parts.loader->epoch(++epoch)), batch = batches->next();
    const double lr =
        range.from * std::pow(range.to / range.from, double(i) / double(std::max<int64_t>(range.steps - 1, 1)));
    parts.learner->begin_step({i, range.steps, epoch, parts.seed});
    const Step::Result result =
        parts.step->run(batch->images(), batch->labels(), lr, {}, {.samples = batch->global_size});
    const double loss = result.loss.copy_to(Device{}).item();
    if (!std::isfinite(loss)) break;
    average = kDecay * average + (1 - kDecay) * loss, decayed *= kDecay;
    const double smoothed = average / (1 - decayed);
    out.push_back({lr, loss, smoothed});
    if (i > 0 && smoothed > lowest + kDiverged * std::abs(lowest)) break;
    lowest = i == 0 ? smoothed : std::min(lowest, smoothed);
  }
  return out;
}

std::optional<size_t> steepest(const std::vector<LrPoint>& points) {
  constexpr size_t kFirst = 10, kLast = 1;
  if (points.size() < kFirst + kLast + 2) return {};
  const size_t begin = kFirst, end = points.size() - kLast - 1;  // the last one
  std::optional<size_t> out;
  double least = 0;
  for (size_t i = begin; i <= end; ++i) {  // as numpy.gradient
    const size_t before = i == begin ? i : i - 1, after = i == end ? i : i + 1;
    const double slope = (points[after].smoothed - points[before].smoothed) / double(after - before);
    if (!out || slope < least) out = i, least = slope;
  }
  return out;
}

}  // namespace ringtape
