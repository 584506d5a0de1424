// ResNet-18 as `ringtape train` trains it: settings by name, what they set up, a trainer that reports its figures.
// Prints:
//   train 2, val 2, test 1
//   the loss has fallen: yes
#include <ringtape/train/settings/run_setup.h>

#include <cstdio>
#include <map>
#include <string>

using namespace ringtape;

int main() {
  TrainOptions options;
  for (const auto& [name, value] : std::map<std::string, std::string>{{"data", "shapes"},
                                                                      {"train-size", "192"},
                                                                      {"test-size", "32"},
                                                                      {"val-size", "32"},
                                                                      {"model", "resnet18"},
                                                                      {"width", "4"},
                                                                      {"batch-size", "32"},
                                                                      {"epochs", "2"},
                                                                      {"lr", "0.01"}})
    set_option(options, name, value, name);  // what --NAME VALUE does
  options.run.json = true;                   // no bars on the terminal
  RunSetup setup(resolve(options));
  Trainer trainer = make_trainer(setup);
  std::map<std::string, int> reports;
  std::vector<double> losses;
  trainer.fit([&](const Metrics& m) {
    ++reports[m.split];
    if (m.split == "train") losses.push_back(*m.loss);
  });
  std::printf("train %d, val %d, test %d\n", reports["train"], reports["val"], reports["test"]);
  std::printf("the loss has fallen: %s\n", losses[1] < losses[0] ? "yes" : "no");
  return losses[1] < losses[0] ? 0 : 1;
}
