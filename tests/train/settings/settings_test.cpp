// Settings belong to components: which settings a training has, messages about others, and settings of earlier
// versions.
#include "tests/support/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "nn/ssl/method.h"
#include "tests/support/cli_command.h"
#include "train/settings/given.h"
#include "train/settings/presets.h"

namespace ringtape {
namespace {

using ComponentSettings = CliTest;

// A setting that the chosen component does not have. Who else has it grows with the components: one is expected.
struct Foreign {
  std::string command, message, owner, kind;
};

TEST_F(ComponentSettings, OfOtherComponentsAreRefused) {
  const std::string moco = "pretrain --data shapes --method moco ", simclr = "pretrain --data shapes --method simclr ";
  const Foreign cases[] = {
      {"train --optimizer adam --lars-eta 0.5", "--lars-eta: not a setting of adam", "lars", "optimizer"},
      {"train --lars-clip", "--lars-clip: not a setting of adam", "lars", "optimizer"},
      {"train --momentum 0.9", "--momentum: not a setting of adam", "sgd", "optimizer"},
      {"train --optimizer adamw --nesterov", "--nesterov: not a setting of adamw", "lars", "optimizer"},
      {"train --optimizer sgd --beta1 0.8", "--beta1: not a setting of sgd", "adam", "optimizer"},
      {"train --optimizer lars --epsilon 1e-6", "--epsilon: not a setting of lars", "adamw", "optimizer"},
      {"train --gamma 0.5", "--gamma: not a setting of constant", "step", "schedule"},
      {"train --schedule step --final-lr 0.1", "--final-lr: not a setting of step", "cosine", "schedule"},
      {"train --powersgd-rank 4", "--powersgd-rank: not a setting of sum", "powersgd", "gradient-reduction"},
      {"train --width 16", "--width: not a setting of mlp", "resnet18", "model"},
      {"train --no-stem-relu", "--no-stem-relu: not a setting of mlp", "resnet34", "model"},
      {"train --model resnet18 --hidden 64", "--hidden: not a setting of resnet18", "mlp", "model"},
      {"train --model resnet34 --dropout 0.1", "--dropout: not a setting of resnet34", "mlp", "model"},
      {"train --model fashion_cnn --stem-padding 2", "--stem-padding: not a setting of fashion_cnn", "resnet18",
       "model"},
      {"train --data mnist --train-size 100", "--train-size: not a setting of mnist", "shapes", "data"},
      {"train --image-size 64", "--image-size: not a setting of shapes", "imagefolder", "data"},
      {"data info cifar10 --image-size 64", "--image-size: not a setting of cifar10", "imagefolder", "data"},
      {simclr + "--queue 777", "--queue: not a setting of simclr", "moco", "method"},
      {simclr + "--sinkhorn-epsilon 0.3", "--sinkhorn-epsilon: not a setting of simclr", "swav", "method"},
      {simclr + "--momentum-encoder 0.9", "--momentum-encoder: not a setting of simclr", "byol", "method"},
      {moco + "--prototypes 99", "--prototypes: not a setting of moco", "swav", "method"},
      {moco + "--gather-distributed", "--gather-distributed: not a setting of moco", "barlow_twins", "method"},
      {moco + "--prediction-hidden 8", "--prediction-hidden: not a setting of moco", "simsiam", "method"},
      {"pretrain --data shapes --method byol --temperature 0.2", "--temperature: not a setting of byol", "simclr",
       "method"},
      {"bench step --bn-splits 2", "--bn-splits: no method is chosen", "moco", "method"},
  };
  for (const auto& [command, message, owner, kind] : cases) {
    expect_error(command, 2, message + "; ");
    const std::regex owners("; (.*(, | and ))?" + owner + "(,.*| and .*)? ha(s|ve) it \\(--" + kind + "\\)");
    const std::string error = read_file((folder_ / "err").string());
    EXPECT_TRUE(std::regex_search(error, owners)) << owner << " is not in: " << error;
  }
  expect_error("compare --methods simclr,byol --queue 64", 2, "--queue: none of --methods has this setting");
}

TEST_F(ComponentSettings, OfAFileAreThoseOfWhatIsChosen) {
  const std::string file = (folder_ / "c.toml").string();
  write_file(
      file,
      "optimizer = 'adam'\nlars-eta = 0.5\nwidth = 4\nhidden = 6\ntrain-size = 100\ntest-size = 10\nepochs = 1\n");
  const CliResult r = run("train --config " + file + " --run a");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.err, "c.toml: lars-eta, width: ignored, because this training does not have these settings");
  const std::string config = read_file((folder_ / "work/runs/a/config.toml").string());
  EXPECT_MENTIONS(config, "\n# Model mlp\nhidden = 6\n");
  EXPECT_LACKS(config, "lars");
  EXPECT_LACKS(config, "width");
  const CliResult again = run("train --config runs/a/config.toml --run b");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err, "");
}

// A file's settings of one component also apply to another one that a flag chooses, unless they are the defaults of the
// first.
TEST(SettingsOfAFile, ReachWhatAFlagChooses) {
  TrainOptions o;
  apply_settings(o, {test::file_of({{"optimizer", "sgd"},
                                    {"weight-decay", "0.01"},
                                    {"momentum", "0.9"},
                                    {"model", "resnet18"},
                                    {"width", "8"}}),
                     test::file_of({{"method", "moco"}, {"queue", "4096"}, {"temperature", "0.3"}}),
                     test::file_of({{"optimizer", "adamw"}, {"model", "resnet34"}, {"method", "swav"}})});
  EXPECT_EQ(option_text(o, "weight-decay"), "0.01");
  EXPECT_EQ(option_text(o, "width"), "8");
  EXPECT_EQ(option_text(o, "queue"), "0");  // 4096 is moco's default
  EXPECT_EQ(option_text(o, "temperature"), "0.3");
  EXPECT_EQ(option_text(o, "momentum"), std::nullopt);
}

// Options of views, and of training images with labels.
TEST(SettingsOfOneName, AreThoseOfTheKindOfTraining) {
  TrainOptions labelled, views;
  test::set(labelled, {{"jitter", "0.5"}, {"crop-low", "0.3"}});
  test::set(views, {{"method", "simclr"}, {"jitter", "0.7"}});
  EXPECT_EQ(labelled.changes.view.jitter, 0.5);
  EXPECT_EQ(labelled.changes.view.crop_low, 0.3);
  EXPECT_EQ(labelled.views.first.jitter, ViewAugmentation{}.jitter);
  EXPECT_EQ(views.views.first.jitter, 0.7);
  EXPECT_EQ(views.changes.view.jitter, 0);
  EXPECT_EQ(option_text(labelled, "jitter"), "0.5");
  EXPECT_EQ(option_text(views, "jitter"), "0.7");
  for (const bool without_labels : {false, true}) {
    TrainOptions o;
    apply_settings(o, {test::file_of({{"gray", "0.25"}, {"method", without_labels ? "simclr" : ""}})});
    EXPECT_EQ(without_labels ? o.views.first.gray : o.changes.view.gray, 0.25);
  }
  EXPECT_TRUE(concerns("jitter", false) && concerns("jitter", true) && concerns("mixup", false));
  EXPECT_FALSE(concerns("mixup", true) || concerns("views", false));
}

// As recipes do, for methods that have another optimizer than most.
TEST(SettingsOfAFile, AreOfTheFirstComponentIfTheirOwnHasNone) {
  const Given recipe = test::file_of({{"optimizer", "adam"}, {"momentum", "0.9"}});
  for (const auto& [chosen, momentum] : {std::pair{"muon", "0.95"}, {"lars", "0.9"}}) {
    TrainOptions o;
    apply_settings(o, {recipe, test::file_of({{"optimizer", chosen}})});
    EXPECT_EQ(option_text(o, "momentum"), momentum) << chosen;
  }
  TrainOptions o;
  const Given refused = test::file_of({{"method", "simclr"}, {"queue", "0"}});
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { apply_settings(o, {refused}); }),
                  "queue: expected a whole number");
}

// A file that does not choose a component: its value counts for the component of the flag, whatever the defaults of
// others are.
TEST_F(ComponentSettings, OfAFileThatDoesNotChooseAreOfWhatAFlagChooses) {
  const std::string file = (folder_ / "c.toml").string();
  const auto read = [&](const std::string& text, std::initializer_list<std::pair<const char*, std::string>> flags) {
    write_file(file, text);
    Given given;
    for (const auto& [name, value] : flags) given.settings.push_back({find_option(name), value, name});
    TrainOptions o;
    apply_settings(o, {read_config(file), given});
    return o;
  };
  EXPECT_EQ(option_text(read("temperature = 0.1\n", {{"method", "simclr"}}), "temperature"), "0.1");
  EXPECT_EQ(option_text(read("projection-hidden = 512\n", {{"method", "byol"}}), "projection-hidden"), "512");
  EXPECT_EQ(option_text(read("momentum = 0.9\n", {{"optimizer", "muon"}}), "momentum"), "0.9");
  EXPECT_EQ(option_text(read("queue = 0\n", {{"method", "swav"}}), "queue"), "0");
  EXPECT_EQ(option_text(read("optimizer = 'sgd'\nmomentum = 0.9\n", {{"optimizer", "muon"}}), "momentum"), "0.95");
  EXPECT_THROW(read("width = 0\n", {}), UsageError);
}

// As written before settings belonged to components: the settings of all components, and the old values for "not
// given".
TEST(SettingsOfAFile, OfEarlierVersionsMeanWhatTheyMeant) {
  for (const auto& [method, queue, temperature, hidden, norm] :
       {std::tuple{"moco", "4096", "0.1", "512", "none"}, {"swav", "0", "0.1", "512", "hidden"}}) {
    TrainOptions o;
    test::set(o, {{"method", method}, {"hidden", "128"}, {"width", "16"}, {"model", "resnet18"}, {"dropout", "0"}});
    test::set(o, {{"temperature", "0"},
                  {"projection-hidden", "0"},
                  {"projection-norm", "method"},
                  {"prediction-norm", "method"}});
    test::set(o, {{"queue", "-1"}, {"prediction-hidden", "0"}, {"sinkhorn-epsilon", "0.05"}, {"nesterov", "false"}});
    EXPECT_EQ(option_text(o, "queue"), queue);
    EXPECT_EQ(option_text(o, "temperature"), temperature);
    EXPECT_EQ(option_text(o, "projection-hidden"), hidden);
    EXPECT_EQ(option_text(o, "projection-norm"), norm);
    EXPECT_EQ(option_text(o, "width"), "16");
    std::map<std::string, std::string> before = kept_settings(o);
    before["queue"] = "-1", before["temperature"] = "0", before["projection-hidden"] = "0",
    before["projection-norm"] = "method";
    before["sinkhorn-iterations"] = "3", before["lars-eta"] = "0.02", before["hidden"] = "128";
    EXPECT_EQ(changed_settings(o, before), std::vector<std::string>());
    before["queue"] = "64";
    EXPECT_EQ(changed_settings(o, before), std::vector{concat("--queue ", queue, " (was 64)")});
  }
}

// In no file of configs/ssl.
const nn::RegisterMethod kNewMethod({.name = "new_method", .summary = "what somebody adds", .make = nullptr});

TEST(Presets, AreTheFilesOfConfigs) {
  std::set<std::string> files, names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(RINGTAPE_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".toml" && !files.insert(entry.path().stem()).second) ADD_FAILURE() << entry.path();
  for (const Preset& preset : presets()) {
    names.insert(preset.name);
    EXPECT_TRUE(std::string_view(preset.text).starts_with("# ")) << preset.name;  // what `ringtape list` says of it
    if (preset.self_supervised) continue;
    TrainOptions o;
    apply_settings(o, {read_preset(preset.name)});
    EXPECT_NO_THROW((void)resolve(o)) << preset.name;
  }
  EXPECT_EQ(names, files);
}

TEST(SettingsOfANewMethod, AreThoseOfTheDefaultPreset) {
  TrainOptions o;
  apply_settings(o, {read_preset({}, "new_method")});
  EXPECT_EQ(o.method.name, "new_method");
  EXPECT_EQ(o.schedule.base_lr, 0.12);
  EXPECT_EQ(o.trainer.batch_size, 512);
  for (const std::string preset : {"corrected", "seed000"})
    EXPECT_MENTIONS(test::message_of<UsageError>([&] { (void)read_preset(preset, "new_method"); }),
                    concat("--preset ", preset, ": has no recipe for new_method"));
}

TEST_F(ComponentSettings, AreShownWithTheirComponent) {
  const std::string usual = run("pretrain --help").out, moco = run("pretrain --method moco --help").out,
                    all = run("pretrain --help-all").out;
  EXPECT_LACKS(usual, "--queue");
  EXPECT_LACKS(usual, "--weight-decay");
  EXPECT_MENTIONS(usual, "--base-lr X");
  EXPECT_MENTIONS(usual, "`ringtape pretrain --help-all` shows all flags, --help with --data NAME,");
  EXPECT_MENTIONS(moco, "\nMethod moco:\n  --temperature X");
  EXPECT_MENTIONS(moco, "[4096]");
  EXPECT_LACKS(moco, "--prototypes");
  for (const char* heading : {"Method moco", "Method swav", "Model mlp", "Optimizer lars", "Data shapes"})
    EXPECT_MENTIONS(all, concat("\n", heading, ":\n"));
  EXPECT_LACKS(all, "--help-all` shows");
  EXPECT_MENTIONS(run("train --help --optimizer lars").out, "\nOptimizer lars:\n");
}

TEST_F(ComponentSettings, AWarmUpOfARecipeIsNoLongerThanTheTraining) {
  const std::string tiny =
      "pretrain --method simclr --data shapes --train-size 64 --test-size 10 --model mlp --batch-size 32 --knn-k 5 "
      "--projection-hidden 8 --projection-dim 4 --threads 1 ";
  const CliResult r = run(tiny + "--epochs 1 --run a");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.err, "the warm-up of 5 epochs is shortened to the length of the training");
  EXPECT_MENTIONS(read_file((folder_ / "work/runs/a/config.toml").string()), "warmup-epochs = 1\n");
  fs::remove_all(folder_ / "work/runs");
  expect_error(tiny + "--epochs 1 --warmup-epochs 2", 2, "--warmup-epochs 2: longer than the training of 1 epochs");
}

}  // namespace
}  // namespace ringtape
