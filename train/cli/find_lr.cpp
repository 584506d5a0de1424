#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "comm/job/place.h"
#include "core/log.h"
#include "train/cli/standard_streams.h"
#include "train/cli/training.h"
#include "train/cli/training_run.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/loop/lr_range.h"
#include "train/loop/world.h"
#include "train/report/svg.h"

namespace ringtape::cli {
namespace {

// Pixels.
constexpr double kRangeWidth = 720, kRangeHeight = 420, kRangeLeft = 64, kRangeRight = 24, kRangeTop = 64,
                 kRangeBottom = 352;

// The losses by learning rate, on a scale of powers of ten, and the suggestion.
std::string range_plot(const std::vector<LrPoint>& points, const std::optional<size_t>& best, const LrRange& range,
                       const std::string& title) {
  Svg svg(kRangeWidth, kRangeHeight, title);
  svg.text(kRangeLeft, 26, title, "head");
  svg.text(kRangeLeft, kRangeTop - 12, "loss; strong: smoothed");
  double low = points[0].smoothed, high = low;
  for (const LrPoint& p : points) low = std::min(low, p.smoothed), high = std::max(high, p.smoothed);
  const double margin = high > low ? 0.05 * (high - low) : 1;
  low -= margin, high += margin;
  const double first = std::log10(range.from), last = std::log10(range.to);
  const auto x = [&](double lr) {
    return kRangeLeft + (kRangeWidth - kRangeLeft - kRangeRight) * (std::log10(lr) - first) / (last - first);
  };
  const auto y = [&](double loss) {
    return kRangeBottom - (kRangeBottom - kRangeTop) * (std::clamp(loss, low, high) - low) / (high - low);
  };
  for (const double loss : ticks(low, high, 7)) {
    svg.line(kRangeLeft, y(loss), kRangeWidth - kRangeRight, y(loss), "grid");
    svg.text(kRangeLeft - 6, y(loss) + 4, fmt::format("{:g}", loss), "soft", Svg::Anchor::end);
  }
  for (double power = std::ceil(first - 1e-9); power <= last + 1e-9; ++power)
    svg.text(x(std::pow(10, power)), kRangeBottom + 18, fmt::format("{:g}", std::pow(10, power)), "soft",
             Svg::Anchor::middle);
  svg.line(kRangeLeft, kRangeBottom, kRangeWidth - kRangeRight, kRangeBottom, "axis");
  svg.text(kRangeWidth - kRangeRight, kRangeBottom + 38, "learning rate", "soft", Svg::Anchor::end);
  Svg::Points raw, smoothed;
  for (const LrPoint& p : points) raw.emplace_back(x(p.lr), y(p.loss)), smoothed.emplace_back(x(p.lr), y(p.smoothed));
  svg.curve(raw, "grid");
  svg.curve(smoothed, Svg::series(0));
  if (best) {
    const LrPoint& p = points[*best];
    svg.dot(x(p.lr), y(p.smoothed), Svg::mark(1), fmt::format("{:.3g}", p.lr));
    svg.text(x(p.lr) + 8, y(p.smoothed) - 8, fmt::format("{:.3g}", p.lr));
  }
  return svg.str();
}

std::string range_table(const std::vector<LrPoint>& points) {
  std::string out = "lr,loss,smoothed\n";
  for (const LrPoint& p : points) out += concat(p.lr, ",", p.loss, ",", p.smoothed, "\n");
  return out;
}

LrRange range_of(const Invocation& invocation) {
  constexpr double kLowest = 1e-12, kHighest = 1e6;
  LrRange out;
  out.from = number_flag(invocation, "from", kLowest, kHighest, out.from);
  out.to = number_flag(invocation, "to", kLowest, kHighest, out.to);
  out.steps = number_flag(invocation, "steps", int64_t{1}, int64_t{1'000'000}, out.steps);
  RT_CHECK_AS(UsageError, out.from < out.to, "--from ", out.from, ": must be below --to ", out.to);
  return out;
}

int run_find_lr(const Invocation& invocation) {
  const LrRange range = range_of(invocation);
  TrainOptions options;
  const Given recipe = recipe_of(invocation, invocation.flag("method") ? Use::pretrain : Use::train);
  for (const std::string& note : apply_flags(options, invocation, {recipe})) log_info(note);
  RT_CHECK_AS(UsageError, !wants_ranks(options.parallel) && !comm::place_of_process(),
              "find-lr: uses one rank, with the batch of all; leave out --devices and the launcher");
  const std::string *const svg = invocation.flag("svg"), *const csv = invocation.flag("csv");
  const std::string picture = svg ? *svg : "find-lr.svg", table = csv ? *csv : "find-lr.csv";
  RT_CHECK_AS(UsageError, picture != table, "--csv ", table, ": is also --svg; choose two files");
  options = resolve(std::move(options));
  const auto setup = set_up(std::move(options), "", true);
  const TrainOptions& o = setup->options;
  const Training parts = make_training(*setup);
  const std::vector<LrPoint> points = test_lrs(parts, range);
  RT_CHECK_AS(Error, !points.empty(), "the loss of the first step, at learning rate ", range.from, ", is not finite");
  const std::optional<size_t> best = steepest(points);
  write_file(picture, range_plot(points, best, range,
                                 concat(parts.learner->facts.title, " on ", o.data.set.name, ", ",
                                        o.step.optimizer.name, ", batch ", o.trainer.batch_size)));
  write_file(table, range_table(points));
  const bool whole = int64_t(points.size()) == range.steps;
  if (o.run.json) {
    Json line{{"steps", points.size()}, {"last_lr", points.back().lr}, {"svg", picture}, {"csv", table}};
    line["lr"] = best ? Json(points[*best].lr) : Json(nullptr);
    print_line(line.text());
    return 0;
  }
  print_line(concat("tested ", points.size(), points.size() == 1 ? " step" : " steps", ", learning rates ",
                    fmt::format("{:.3g} to {:.3g}", range.from, points.back().lr),
                    whole ? "" : ", where the loss diverged"));
  print_line(best ? fmt::format("found  --lr {:.3g}, where the loss falls most steeply", points[*best].lr)
                  : "found  none: too few steps before the end; lower --from, or more --steps");
  print_line(concat("saved  ", picture, ", ", table));
  return 0;
}

}  // namespace

Command find_lr_command() {
  Command command;
  command.name = "find-lr";
  command.summary =
      "Suggests a learning rate: takes steps of a training at rising rates, and finds where the loss falls most "
      "steeply. Keeps no weights.";
  command.usage = "[FLAGS OF train OR pretrain]";
  command.examples = {"find-lr --data mnist --data-dir ~/mnist --optimizer sgd",
                      "find-lr --preset cifar10_resnet18 --data-dir DIR --steps 200"};
  command.flags = {{"Test", "from", "X", "learning rate of the first step", "1e-7"},
                   {"Test", "to", "X", "learning rate of the last step", "10"},
                   {"Test", "steps", "N", "number of steps; fewer if the loss diverges", "100"},
                   {"Output", "svg", "FILE", "picture of the losses by learning rate", "find-lr.svg"},
                   {"Output", "csv", "FILE", "table of the same", "find-lr.csv"}};
  for (Flag& flag : option_flags(Use::either))
    if ((flag.group != "Run" || flag.name == "json") && flag.group != "Callbacks")
      command.flags.push_back(std::move(flag));
  std::ranges::move(recipe_flags(Use::either), std::back_inserter(command.flags));
  command.run = run_find_lr;
  return command;
}

}  // namespace ringtape::cli
