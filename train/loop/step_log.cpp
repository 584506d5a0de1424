#include "train/loop/step_log.h"

#include <cmath>
#include <limits>
#include <utility>

namespace ringtape {

void StepLog::add(const Step& step, const Step::Result& result, int64_t images, int64_t epoch, double lr) {
  if (every_ == 0) return;
  images_ += images;
  if (step.count() % every_ != 0) return;
  const Readback loss(result.loss);
  const GradientScale& scale = step.gradient_scale();
  const Readback norm = scale.active() ? Readback(scale.norm()) : Readback(),
                 factor = scale.dynamic() ? Readback(scale.state().window({1}, {1})) : Readback();
  flush();
  loss_ = loss, norm_ = norm, scale_ = factor;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(since_, now)).count();
  pending_ = {};
  pending_.split = "train_step";
  pending_.epoch = epoch, pending_.step = step.count(), pending_.lr = lr;
  pending_.images_per_s = double(std::exchange(images_, 0)) / seconds;
}

void StepLog::flush() {
  if (!loss_.defined()) return;
  pending_.loss = loss_.get().item();
  // The sign of a NaN has no meaning: drop it.
  if (std::isnan(*pending_.loss)) pending_.loss = std::numeric_limits<double>::quiet_NaN();
  if (norm_.defined()) pending_.grad_norm = norm_.get().item();
  if (scale_.defined()) pending_.loss_scale = scale_.get().item();
  loss_ = norm_ = scale_ = {};
  report_(pending_);
}

}  // namespace ringtape
