#include "train/cli/compare.h"

#include "train/run/stop.h"
#include "train/settings/presets.h"

namespace ringtape::cli {

static int run(const Invocation& invocation) {
  const bool methods = invocation.flag("methods"), inference = invocation.has("inference");
  RT_CHECK_AS(UsageError, !methods || !inference,
              "--methods and --inference: one compares trainings, the other forward passes");
  if (inference) return compare_inference(invocation);
  hold_stops();
  return methods ? compare_methods(invocation) : compare_strategies(invocation);
}

Command compare_command() {
  Command command;
  command.name = "compare";
  command.summary = "Trains the same under several strategies and seeds, or by several methods, and prints the table.";
  command.usage = "[FLAGS]";
  command.examples = {"compare --devices 2 --strategies single,ddp --seeds 2,4,42",
                      "compare --model resnet18 --data cifar10 --data-dir DIR --devices 2 --epochs 10",
                      "compare --config configs/cifar100_resnet18.toml --data-dir DIR --devices 2 --out results",
                      "compare --methods all --preset seed000 --data-dir DIR --devices 4",
                      "compare --methods simclr,byol --data shapes --width 8 --epochs 5 --devices 2",
                      "compare --inference --model fashion_cnn --devices 2"};
  std::string strategies, presets;
  for (const std::string& name : strategy_choices()) strategies += " " + name;
  for (const Preset& preset : ringtape::presets()) presets += concat(" ", preset.name);
  command.flags = {
      {"Comparison", "strategies", "LIST", "with commas between them:" + strategies,
       default_strategies() + "; of --methods single,ddp"},
      {"Comparison", "seeds", "LIST", "each training is done once with each", "2,4,42; of --methods 0"},
      {"Comparison", "out", "DIR", "gets compare.md, .json and .svg, logs/ and a run a training",
       "runs/compare-MODEL-DATA; of --methods runs/compare-methods-MODEL-DATA"},
      {"Comparison", "overwrite", "", "train all again; otherwise what has been run is taken as it is", ""},
      {"Comparison", "json", "", "print compare.json instead of text", ""},
      {"Methods", "methods", "LIST",
       "pretrain by each of these instead, without labels; all: that there are, or that the preset has", ""},
      {"Methods", "sync-bn", "[WHICH]",
       "on, off or both: whether batch normalisation is over all devices of dp and ddp; without --methods a switch",
       "both; without --methods off"},
      {"Methods", "gather", "WHICH",
       "on, off or both: whether losses are over the outputs of all ranks of ddp, where a method has use for them",
       "on"},
      {"Methods", "preset", "NAME", "recipe to begin with, which flags override:" + presets, "corrected"},
      {"Inference", "inference", "", "time forward passes instead: one device beside dp, by batch size", ""},
      {"Inference", "batch-sizes", "LIST", "images of a pass", "1,4,16,64,256"}};
  for (Flag& flag : training_flags())
    if (flag.name != "sync-bn") command.flags.push_back(std::move(flag));
  command.flags.push_back({"Run", "config", "FILE", "TOML file of the settings above, a line each", ""});
  command.run = run;
  return command;
}

}  // namespace ringtape::cli
