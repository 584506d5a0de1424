#include "train/cli/compare.h"

#include <algorithm>
#include <iterator>

#include "train/run/stop.h"

namespace ringtape::cli {

static int run_compare(const Invocation& invocation) {
  const bool methods = invocation.flag("methods"), inference = invocation.has("inference"),
             memory = invocation.has("memory");
  RT_CHECK_AS(UsageError, methods + inference + memory <= 1,
              "--methods, --inference and --memory: give only one; they compare trainings, forward passes and the "
              "memory of strategies");
  RT_CHECK_AS(UsageError, !invocation.flag("vary") || inference + memory == 0,
              "--vary: for trainings; leave out --inference and --memory");
  if (inference) return compare_inference(invocation);
  hold_stops();
  return methods ? compare_methods(invocation) : memory ? compare_memory(invocation) : compare_strategies(invocation);
}

Command compare_command() {
  Command command;
  command.name = "compare";
  command.summary =
      "Trains a model with several strategies and seeds, values of settings (a sweep), or methods, and prints a table.";
  command.usage = "[FLAGS]";
  command.examples = {"compare --devices 2 --strategies single,ddp --seeds 2,4,42",
                      "compare --model resnet18 --data cifar10 --data-dir DIR --devices 2 --epochs 10",
                      "compare --preset cifar100_resnet18 --data-dir DIR --devices 2 --out results",
                      "compare --vary lr=1e-3,3e-3 --vary hidden=32,128 --seeds 2,4,42",
                      "compare --methods all --preset seed000 --data-dir DIR --devices 4",
                      "compare --methods simclr,byol --data shapes --width 8 --epochs 5 --devices 2",
                      "compare --inference --model fashion_cnn --devices 2",
                      "compare --memory --model resnet18 --width 256 --batch-size 8 --devices 2,4,8"};
  std::string strategies;
  for (const std::string& name : strategy_choices()) strategies += " " + name;
  command.flags = {
      {"Comparison", "strategies", "LIST", "strategies to compare, separated by commas:" + strategies,
       default_strategies() + "; with --vary that of train; with --methods single,ddp; with --memory " +
           kMemoryStrategies},
      {"Comparison", "vary", "NAME=VALUE,...",
       "a sweep: train with each of these values of a setting; of several settings (--vary again) with all "
       "combinations",
       ""},
      {"Comparison", "seeds", "LIST", "seeds, separated by commas; each training runs once per seed",
       "2,4,42; with --methods 0"},
      {"Comparison", "out", "DIR",
       "folder for compare.md, .csv, .json and .svg, report.html, logs/ and the run of each "
       "training",
       "runs/compare-MODEL-DATA; with --vary NAME runs/compare-NAME-MODEL-DATA; with --methods "
       "runs/compare-methods-MODEL-DATA; with --memory "
       "runs/compare-memory-MODEL-DATA"},
      {"Comparison", "overwrite", "", "train all again; otherwise finished runs are reused", ""},
      {"Comparison", "json", "", "print compare.json instead of text", ""},
      {"Methods", "methods", "LIST",
       "compare these self-supervised methods instead; all: all methods, or all with a recipe in --preset", ""},
      {"Methods", "sync-bn", "[WHICH]",
       "on, off or both: batch normalisation over all devices of dp and ddp; without --methods a switch",
       "both; without --methods off"},
      {"Methods", "gather", "WHICH",
       "on, off or both: losses over the outputs of all ranks of ddp, for methods that support it", "on"},
      {"Inference", "inference", "", "time forward passes instead: one device compared with dp, by batch size", ""},
      {"Inference", "batch-sizes", "LIST", "images per forward pass, separated by commas", "1,4,16,64,256"},
      {"Memory", "memory", "",
       "compare the memory of a rank instead: what the formula of each strategy says, and what a training of a few "
       "steps had; --devices may be a list: 2,4,8",
       ""}};
  for (Flag& flag : training_flags())
    if (flag.name != "sync-bn") command.flags.push_back(std::move(flag));
  std::ranges::move(recipe_flags(Use::either), std::back_inserter(command.flags));
  command.run = run_compare;
  return command;
}

}  // namespace ringtape::cli
