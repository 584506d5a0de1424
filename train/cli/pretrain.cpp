#include <algorithm>
#include <iterator>

#include "train/cli/training.h"
#include "train/settings/given.h"

namespace ringtape::cli {

Command pretrain_command() {
  Command command;
  command.name = "pretrain";
  command.summary = "Trains a backbone without labels, and tests its features with kNN after each epoch.";
  command.usage = "--method NAME [FLAGS]";
  command.meets = true;
  command.examples = {"pretrain --method simclr --data shapes --width 16 --epochs 5 --warmup-epochs 1",
                      "pretrain --method byol --preset seed000 --data-dir DIR --run byol",
                      "pretrain --method moco --data-dir DIR --devices 2 --sync-bn",
                      "pretrain --run byol --resume         # from its newest checkpoint"};
  command.flags = option_flags(Use::pretrain);
  std::ranges::move(recipe_flags(Use::pretrain), std::back_inserter(command.flags));
  command.usual = {"method",  "model",    "data",    "data-dir", "preset", "epochs", "batch-size",
                   "base-lr", "knn-data", "knn-dir", "devices",  "run",    "resume"};
  command.see =
      "`ringtape list` explains these names, `ringtape compare --methods` compares methods, with --vary also a sweep "
      "over several values.";
  command.defaults = [](const Invocation& invocation) {
    const std::string *const preset = invocation.flag("preset"), *const method = invocation.flag("method");
    std::map<std::string, std::string> out;
    if (!preset && invocation.flag("config")) return out;
    const Given recipe = read_preset(preset ? std::optional(*preset) : std::nullopt, method ? *method : "");
    for (const Given::Setting& setting : recipe.settings) out[setting.option->name] = setting.text;
    return out;
  };
  command.run = [](const Invocation& invocation) { return run_training(invocation, Use::pretrain); };
  return command;
}

}  // namespace ringtape::cli
