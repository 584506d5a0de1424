#include "train/inference/find_weights.h"

#include "core/printable.h"
#include "train/io/look.h"
#include "train/io/weights_file.h"
#include "train/run/run_dir.h"

namespace ringtape {
namespace {

// Runs and checkpoints are folders; a run may also be a name below runs/. Anything else is a file of weights.
// Another folder may have a run's name, such as that of its images.
std::string find_run(const std::string& target) {
  const auto is_run = [](const std::string& folder) {
    return is_there(folder + "/config.toml") || is_there(folder + "/model.safetensors");
  };
  const std::string here = "runs/" + target;
  if (is_folder_at(target) && (is_run(target) || !is_run(here))) return target;
  return is_folder_at(here) ? here : "";
}

// The names of some runs, for a message.
std::string runs_text() {
  constexpr size_t kMost = 5;
  std::string out;
  size_t count = 0;
  for (const std::string& name : is_folder_at("runs") ? names_in("runs") : std::vector<std::string>())
    if (is_there("runs/" + name + "/config.toml") && ++count <= kMost) out += concat(count > 1 ? ", " : "", name);
  return out.empty() ? "" : concat("; runs/ has ", printable(out), count > kMost ? ", ..." : "");
}

FoundWeights found_file(const std::string& file, const std::string& set) {
  return {file, set, read_metadata(read_weights_header(file, set).metadata, file)};
}

// A checkpoint's file of the average, or of the weights without averaging; `set`: that one.
std::string file_of_checkpoint(const std::string& folder, const std::string& set) {
  const std::string averaged = folder + "/ema.safetensors";
  RT_CHECK_AS(UsageError, set.empty() || set == "model" || set == "ema", "--weights-key ", set, ": ", folder,
              " has `model`, and with --ema also `ema`");
  RT_CHECK_AS(UsageError, set != "ema" || is_there(averaged), "--weights-key ema: there is no ", averaged,
              "; only trainings with --ema write it");
  return set != "model" && is_there(averaged) ? averaged : folder + "/model.safetensors";
}

}  // namespace

bool is_weights(const std::string& target) { return !find_run(target).empty() || is_there(target); }

FoundWeights find_weights(const std::string& target, const std::string& set) {
  const std::string run = find_run(target);
  if (run.empty()) {
    RT_CHECK_AS(IoError, is_there(target), "there is no run and no file '", target, "'", runs_text());
    return found_file(target, set);
  }
  if (is_there(run + "/model.safetensors")) return found_file(file_of_checkpoint(run, set), "");
  const std::string config = run + "/config.toml";
  RT_CHECK_AS(IoError, is_there(config), run, ": not a run: it has no config.toml");
  const Given settings = read_config(config);
  if (!set.empty()) {  // exported is only one
    const Given::Setting* const exported = settings.find("export");
    const std::string folder = concat(run, "/checkpoints/", exported ? exported->text : CheckpointOptions().exported);
    return {file_of_checkpoint(folder, set), "", settings};
  }
  for (const bool backbone : {false, true})
    if (const std::string weights = concat(run, "/exported/", exported_name(backbone)); is_there(weights))
      return {weights, "", settings};
  const Given::Setting* const method = settings.find("method");
  throw IoError(concat(run, ": has no exported/", exported_name(method && !method->text.empty()),
                       "; the training has not finished (its checkpoints can be tested: ", run, "/checkpoints/last)"));
}

}  // namespace ringtape
