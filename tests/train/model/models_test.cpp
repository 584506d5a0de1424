// Every model by its name, through the command line. Gradients beside PyTorch's: tests/nn/resnet_test.cpp.
#include "train/model/models.h"

#include "tests/support/cli_command.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

// Flags that make a model small.
std::string small(const ModelEntry& entry) {
  std::string out = concat(" --model ", entry.name);
  for (const auto& [name, value] :
       {std::pair{"width", "4"}, {"hidden", "8"}, {"depth", "10"}, {"widen", "1"}, {"heads", "2"}})
    if (Settings settings = entry.settings; find_field(settings, name)) out += concat(" --", name, " ", value);
  return out;
}

class Models : public CliTest {
 protected:
  void succeed(const std::string& arguments) {
    result_ = run(arguments);
    ASSERT_EQ(result_.code, 0) << arguments << "\n" << result_.err;
  }
  CliResult result_;
};

TEST_F(Models, AreTrainedTestedAndExported) {
  for (const ModelEntry& entry : models()) {
    const std::string name = entry.name;
    succeed("train --data shapes --train-size 64 --test-size 20 --val-size 0 --batch-size 32 --epochs 1 --run " + name +
            small(entry));
    succeed("evaluate " + name + " --json");
    EXPECT_EQ(parse_json(result_.out)["images"], 20);
    succeed("export " + name + " --out " + name + ".safetensors");
    const Safetensors weights = read_safetensors((folder_ / "work" / (name + ".safetensors")).string());
    EXPECT_GT(weights.tensors.size(), 3u);
    const std::string readme = read_file((folder_ / "work" / (name + ".md")).string());
    EXPECT_EQ(readme.find("load_state_dict") != std::string::npos, entry.pytorch != nullptr) << name;
  }
}

TEST_F(Models, OfEveryKindAreBackbonesOfMethods) {
  for (const char* model : {"resnet50", "wide_resnet"}) {
    succeed(
        concat("pretrain --method simsiam --data shapes --train-size 64 --test-size 20 --batch-size 32 --epochs 1 ",
               "--warmup-epochs 0 --projection-hidden 16 --projection-dim 8 --prediction-hidden 8 --knn-k 20 --run ",
               model, small(find_model(model))));
    succeed(concat("evaluate ", model, " --protocol knn --knn-k 20 --json"));
    EXPECT_EQ(parse_json(result_.out)["features"], model == std::string("resnet50") ? 128 : 64);
  }
}

TEST_F(Models, AreTimedOnImagesOfAnySize) {
  succeed("bench step --model resnet50 --width 1 --pixels 112 --batch-size 2 --threads 1 --json");
  const double large = parse_json(result_.out)["peak_bytes"].get<double>();
  succeed("bench step --model resnet50 --width 1 --batch-size 2 --threads 1 --json");
  EXPECT_GT(large, 1.5 * parse_json(result_.out)["peak_bytes"].get<double>());
}

TEST_F(Models, WideResNetsHaveWholeBlocks) {
  expect_error("train --model wide_resnet --depth 30 --train-size 20 --test-size 20 --val-size 0", 2,
               "wide_resnet: expected a depth of 6 n + 4, such as 16 or 28, got 30");
}

}  // namespace
}  // namespace ringtape
