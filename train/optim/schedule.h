#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ringtape {

// The learning rate as a function of the step. `step` counts from 0; a fractional epoch is step / steps_per_epoch.
struct Schedule {
  enum class Kind : uint8_t { constant, step, cosine };
  Kind kind = Kind::constant;
  double lr = 0.1;               // the peak
  int64_t steps_per_epoch = 1;
  int64_t epochs = 1;
  double warmup_epochs = 0;      // linear: step s has warmup_lr + (lr - warmup_lr) (s + 1) / (warm-up steps)
  double warmup_lr = 0;          // where the warm-up begins
  int64_t step_size = 30;        // step: epochs between drops
  double gamma = 0.1;            // step: factor of a drop
  double final_lr = 0;           // cosine: where it ends
  bool by_epoch = false;         // cosine: all steps of an epoch have the rate of its first, as with PyTorch's CosineAnnealingLR

  // constant: lr. step: lr gamma^(whole epochs / step_size). cosine: from lr at the end of the warm-up to final_lr after
  // the last step, by step: final + (lr - final) (1 + cos(pi t)) / 2.
  double at(int64_t step) const;
};

// A schedule the command line knows by name.
struct ScheduleEntry {
  const char* name;
  Schedule::Kind kind;
};
std::span<const ScheduleEntry> schedules();
Schedule::Kind parse_schedule(const std::string& name);  // throws UsageError

}  // namespace ringtape
