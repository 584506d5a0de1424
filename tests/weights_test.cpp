// What trained weights are good for, by the ringtape binary: features, nearest neighbours, a linear probe, exports, beginnings of other
// trainings.
#include "train/weights.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "train/io/file.h"
#include "train/io/npy.h"
#include "train/models.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::values;

class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_weights_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The exit code; what it printed is in the files out and err.
  int run(const std::string& arguments) const {
    const int status =
        std::system(concat("cd ", folder_.string(), " && ", RINGTAPE_BINARY, " ", arguments, " >out 2>err </dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  json result_of(const std::string& arguments) const {
    EXPECT_EQ(run(arguments + " --json"), 0) << file("err");
    return json::parse(file("out"));
  }
  void expect_error(const std::string& arguments, int code, const std::string& part) const {
    EXPECT_EQ(run(arguments), code) << arguments;
    const std::string error = file("err");
    EXPECT_MENTIONS(error, part);
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name) const { return read_file(path(name)); }

  void train(const std::string& more) const {
    ASSERT_EQ(run("train --train-size 900 --test-size 300 --epochs 2 --threads 1 " + more), 0) << file("err");
  }

  fs::path folder_;
};

// By NumPy 2.4.
TEST(Npy, IsWhatNumPyWrites) {
  const std::string path = (fs::temp_directory_path() / concat("ringtape_npy_", ::getpid())).string();
  const auto written = [&](const Tensor& x) {
    write_npy(path, x);
    return read_file(path);
  };
  const std::string head = written(from_host(std::vector<int64_t>{7, -1}, {2}));
  ASSERT_EQ(head.size(), 128u + 16u);
  EXPECT_EQ(head.substr(0, 128), std::string("\x93NUMPY\x01\x00v\x00", 10) + "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }" +
                                     std::string(60, ' ') + "\n");
  EXPECT_EQ(head[128], 7);
  const Tensor x = from_host(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_MENTIONS(written(x), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ");
  const std::string turned = written(x.window({3, 2}, {1, 3}));
  float second = 0;
  std::memcpy(&second, turned.data() + turned.size() - 20, 4);
  EXPECT_EQ(second, 4);
  EXPECT_EQ(written(zeros({})).size(), 128u + 4u);
  EXPECT_MENTIONS(test::message_of<DTypeError>([&] { write_npy(path, zeros({1}, DType::bf16)); }), "bf16");
  fs::remove(path);
}

TEST(Classifier, EveryModelIsFeaturesAndALastLayer) {
  for (const ModelEntry& entry : models()) {
    const auto model = entry.make({.image = entry.image, .classes = 7});
    model->train(false);
    const NoGrad no_grad;
    nn::Classifier& split = classifier(*model, entry.name);
    const Tensor x = zeros(Shape{2, entry.image[0], entry.image[1], entry.image[2]}), features = split.features(x), logits = (*model)(x);
    std::map<std::string, Tensor*> parameters;
    for (const nn::Named& p : nn::named_parameters(*model)) parameters[p.name] = p.tensor;
    const Tensor weight = *parameters.at(split.last_layer() + ".weight"), bias = *parameters.at(split.last_layer() + ".bias");
    EXPECT_EQ(values(linear(features, weight, bias)), values(logits)) << entry.name;
    EXPECT_EQ(backbone_of(*model, split.last_layer()).size() + 2, weights_of(*model).size()) << entry.name;
  }
}

TEST_F(WeightsTest, FeaturesAreJudgedAndWritten) {
  train("--run one --hidden 32");
  const double top1 = result_of("evaluate one")["top1"];
  const json knn = result_of("evaluate one --protocol knn --knn-k 30 --knn-temperature 0.2");
  EXPECT_EQ(knn["protocol"], "knn");
  EXPECT_EQ(knn["k"], 30);
  EXPECT_EQ(knn["temperature"], 0.2);
  EXPECT_EQ(knn["train_images"], 900);
  EXPECT_EQ(knn["images"], 300);
  EXPECT_EQ(knn["features"], 32);
  EXPECT_GT(knn["top1"], 0.2);
  EXPECT_GT(knn["top5"], knn["top1"]);
  const json linear = result_of("evaluate one --protocol linear --probe-epochs 20");
  EXPECT_EQ(linear["epochs"], 20);
  EXPECT_EQ(linear["lr"], 0.1);
  EXPECT_GT(linear["top1"], top1 - 0.05);
  EXPECT_EQ(result_of("evaluate one --protocol linear --probe-epochs 20"), linear);
  ASSERT_EQ(run("evaluate one --protocol knn"), 0);
  EXPECT_MENTIONS(file("out"), "kNN, k 200, temperature 0.1\n32 features of 900 training and 300 test images of shapes\ntop-1 ");
  expect_error("evaluate one --protocol knn --knn-k 901", 2, "901 neighbours of a bank of 900 samples");
  expect_error("evaluate one --protocol knn --knn-temperature 0", 2, "--knn-temperature");
  expect_error("evaluate one --protocol knn --logits x", 2, "--logits");

  ASSERT_EQ(run("embed one --out x.npy --labels y.npy"), 0) << file("err");
  EXPECT_MENTIONS(file("x.npy"), "'<f4', 'fortran_order': False, 'shape': (300, 32), }");
  EXPECT_EQ(file("x.npy").size(), 128u + 300 * 32 * 4);
  EXPECT_MENTIONS(file("y.npy"), "'<i8', 'fortran_order': False, 'shape': (300,), }");
  EXPECT_EQ(result_of("embed one --split train --out x.npy")["shape"], (json{900, 32}));
  expect_error("embed one", 2, "--out FILE.npy");
  expect_error("embed one --out a --split val", 2, "'val'");
  expect_error("embed one --out nowhere/a", 1, "cannot write");
}

TEST_F(WeightsTest, ABackboneBeginsAnotherTraining) {
  train("--run one --hidden 32");
  ASSERT_EQ(run("export one --out whole.safetensors"), 0) << file("err");
  EXPECT_EQ(file("whole.safetensors"), file("runs/one/exported/model.safetensors"));
  ASSERT_EQ(run("export runs/one/checkpoints/last --backbone --out backbone.safetensors"), 0) << file("err");
  EXPECT_MENTIONS(file("backbone.md"), "model[3] = nn.Identity()\nmodel.load_state_dict(load_file(\"backbone.safetensors\"), strict=True)");
  const Safetensors backbone = read_safetensors(path("backbone.safetensors"));
  EXPECT_EQ(backbone.tensors.size(), 2u);
  EXPECT_EQ(result_of("evaluate backbone.safetensors --protocol knn --knn-k 30"), [&] {
    json same = result_of("evaluate runs/one/checkpoints/last --protocol knn --knn-k 30");
    same["weights"] = "backbone.safetensors";
    return same;
  }());
  fs::create_directories(path("runs/features/exported"));  // as a training without labels leaves it
  fs::copy(path("runs/one/config.toml"), path("runs/features/config.toml"));
  fs::copy(path("backbone.safetensors"), path("runs/features/exported/backbone.safetensors"));
  EXPECT_EQ(result_of("embed features --out x.npy")["weights"], "runs/features/exported/backbone.safetensors");
  expect_error("evaluate backbone.safetensors", 2, "has no last layer '3'");
  expect_error("export one --out weights.bin", 2, "FILE.safetensors");

  // A learning rate of 0 leaves the weights where they began.
  train("--run fine --hidden 32 --weights backbone.safetensors --lr 0");
  EXPECT_MENTIONS(file("out"), "backbone.safetensors, with a new last layer");
  const Safetensors fine = read_safetensors(path("runs/fine/exported/model.safetensors"));
  for (const NamedTensor& t : backbone.tensors) EXPECT_EQ(values(fine[t.name]), values(t.tensor)) << t.name;
  train("--run same --hidden 32 --weights whole.safetensors --lr 0 --strategy dp --devices 2");
  EXPECT_EQ(file("runs/same/exported/model.safetensors"), file("whole.safetensors"));
  expect_error("train --train-size 100 --hidden 16 --weights backbone.safetensors", 1,
               "tensor '1.weight' is f32 (32, 3072), the model's is f32 (16, 3072)");
  expect_error("train --train-size 100 --model fashion_cnn --weights backbone.safetensors", 1, "no tensor 'layer1.0.weight'");
  expect_error("train --train-size 100 --weights nowhere.safetensors", 1, "nowhere.safetensors: cannot open");
}

}  // namespace
}  // namespace ringtape
