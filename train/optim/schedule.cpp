#include "train/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace ringtape {

double Schedule::at(int64_t step) const {
  const double warmup = warmup_epochs * double(steps_per_epoch);
  if (double(step) < warmup) return warmup_lr + (lr - warmup_lr) * std::min(1.0, double(step + 1) / warmup);
  switch (kind) {
    case Kind::constant: return lr;
    case Kind::step: return lr * std::pow(gamma, double(step / steps_per_epoch / step_size));
    case Kind::cosine: {
      const double rest = double(steps_per_epoch * epochs) - warmup;
      const int64_t at = by_epoch ? step / steps_per_epoch * steps_per_epoch : step;
      const double t = rest > 0 ? std::clamp((double(at) - warmup) / rest, 0.0, 1.0) : 1;
      return final_lr + (lr - final_lr) * (1 + std::cos(std::numbers::pi * t)) / 2;
    }
  }
  return lr;
}

static constexpr ScheduleEntry kSchedules[] = {
    {"constant", Schedule::Kind::constant},
    {"step", Schedule::Kind::step},
    {"cosine", Schedule::Kind::cosine},
};

std::span<const ScheduleEntry> schedules() { return kSchedules; }

Schedule::Kind parse_schedule(const std::string& name) {
  std::string known;
  for (const ScheduleEntry& entry : kSchedules) {
    if (name == entry.name) return entry.kind;
    (known += ' ') += entry.name;
  }
  detail::fail<UsageError>("unknown schedule '", name, "': one of", known);
}

}  // namespace ringtape
