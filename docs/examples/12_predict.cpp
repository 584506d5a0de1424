// A network says of which classes images are, in the program that has trained it, from its exported file; a server
// would begin there. Files of images and their content are given to the Predictor as they are, by several threads.
// Prints:
//   resnet18 for images (32, 32, 3) of 10 classes
//   more than half of 200 images are taken for what they are: yes
#include <ringtape/train/inference/predictor.h>
#include <ringtape/train/settings/run_setup.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

using namespace ringtape;

int main() {
  TrainOptions options;
  const std::map<std::string, std::string> settings{{"model", "resnet18"}, {"width", "4"},      {"train-size", "1000"},
                                                    {"test-size", "200"},  {"epochs", "3"},     {"lr", "0.01"},
                                                    {"val-size", "0"},     {"batch-size", "25"}};
  for (const auto& [name, value] : settings) set_option(options, name, value, name);
  options.run.json = true;  // no bars on the terminal
  RunSetup setup(resolve(options));
  Trainer trainer = make_trainer(setup);
  trainer.fit([](const Metrics&) {});
  const std::string file = std::filesystem::temp_directory_path() / "12_predict.safetensors";
  trainer.export_weights(file);

  const Predictor predictor(file);
  std::printf("%s for images %s of %d classes\n", predictor.model_name().c_str(), predictor.image_shape().str().c_str(),
              int(predictor.classes().size()));
  const Dataset& test = setup.data.test;  // Predictions best = predictor("photo.jpg"), of bytes: predictor(bytes)
  int right = 0;
  for (int64_t i = 0; const Predictions& best : predictor(test.images, 3))
    right += best[0].index == test.labels.span<int64_t>()[size_t(i++)];
  std::printf("more than half of %d images are taken for what they are: %s\n", int(test.size()),
              2 * right > test.size() ? "yes" : "no");
  std::filesystem::remove(file);
}
