#include "train/loop/limits.h"

#include <charconv>
#include <cmath>

#include "core/check.h"

namespace ringtape {

void visit(Fields& f, LimitOptions& o) {
  f("max-steps", o.max_steps,
    {.help = "end the training after this step of the run, and its schedule with it; 0: after --epochs",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("max-time", o.max_time,
    {.help = "end the training after this time, earlier parts of a resumed run included: 90s, 10m, 1h30m",
     .unit = "TIME",
     .automatic = "none",
     .may_change = true});
  f("patience", o.patience,
    {.help = "end the training after N epochs without a better validation (without labels: kNN test); 0: never",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("min-delta", o.min_delta,
    {.help = "--patience: by how much a validation must be better: of an accuracy from 0 to 1, or of the loss",
     .unit = "X",
     .range = kProbability,
     .may_change = true});
}

static double unit_seconds(char unit) {
  return unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86'400 : 0;
}

double seconds_of(const std::string& duration, const std::string& origin) {
  const char *at = duration.data(), *const end = at + duration.size();
  double sum = 0;
  bool good = at != end;
  while (good && at != end) {
    double number = 0;
    const auto [rest, error] = std::from_chars(at, end, number, std::chars_format::fixed);
    const bool bare = rest == end && at == duration.data();
    const double unit = bare ? 1 : rest == end ? 0 : unit_seconds(*rest);
    good = error == std::errc{} && number >= 0 && std::isfinite(number) && unit > 0;
    if (!good) break;
    sum += number * unit;
    at = bare ? rest : rest + 1;
  }
  RT_CHECK_AS(UsageError, good && sum > 0, origin, ": expected a time such as 90s, 10m, 2h or 1h30m, got '", duration,
              "'");
  return sum;
}

void check_before_end(const TrainState& s, int64_t epochs, const LimitOptions& limits) {
  RT_CHECK_AS(UsageError, s.epoch + (s.batch > 0 ? 1 : 0) <= epochs, "--epochs ", epochs,
              ": the run has already trained ", s.epoch, " epochs",
              s.batch > 0 ? concat(" and ", s.batch, " steps") : "");
  RT_CHECK_AS(UsageError, limits.max_steps == 0 || s.step <= limits.max_steps, "--max-steps ", limits.max_steps,
              ": the run has already trained ", s.step, " steps");
}

void note_validation(std::optional<TrainState::Improved>& newest, int64_t epoch, double score, double min_delta) {
  if (!newest || score > newest->score + min_delta) newest = TrainState::Improved{epoch, score};
}

}  // namespace ringtape
