// Uses of trained weights, with the ringtape binary: features, nearest neighbours, a linear probe, exports, initial
// weights of other trainings.
#include "train/weights/weights.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/npy.h"
#include "train/io/pytorch_file.h"
#include "train/loop/exported.h"
#include "train/model/models.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::values;

class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_weights_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Returns the exit code; the output is in the files out and err.
  int run(const std::string& arguments) const {
    const int status = std::system(
        concat("cd ", folder_.string(), " && ", RINGTAPE_BINARY, " ", arguments, " >out 2>err </dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  Json result_of(const std::string& arguments) const {
    EXPECT_EQ(run(arguments + " --json"), 0) << file("err");
    return parse_json(file("out"));
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

// Written by NumPy 2.4.
TEST(Npy, IsWhatNumPyWrites) {
  const std::string path = (fs::temp_directory_path() / concat("ringtape_npy_", ::getpid())).string();
  const auto written = [&](const Tensor& x) {
    write_npy(path, x);
    return read_file(path);
  };
  const std::string head = written(from_host(std::vector<int64_t>{7, -1}, {2}));
  ASSERT_EQ(head.size(), 128u + 16u);
  EXPECT_EQ(head.substr(0, 128), std::string("\x93NUMPY\x01\x00v\x00", 10) +
                                     "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }" +
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
    const ModelSpec spec{.image = entry.image, .classes = 7, .settings = entry.settings};
    const auto model = entry.make(spec);
    model->train(false);
    const NoGrad no_grad;
    nn::Classifier& split = classifier(*model, entry.name);
    const Tensor x = zeros(Shape{2, entry.image[0], entry.image[1], entry.image[2]}), features = split.features(x),
                 logits = (*model)(x);
    std::map<std::string, Tensor*> parameters;
    for (const nn::Named& p : nn::named_parameters(*model)) parameters[p.name] = p.tensor;
    const Tensor weight = *parameters.at(split.last_layer() + ".weight");
    const auto bias = parameters.find(split.last_layer() + ".bias");
    const bool biased = bias != parameters.end();
    EXPECT_EQ(values(linear(features, weight, biased ? *bias->second : Tensor())), values(logits)) << entry.name;
    EXPECT_EQ(features.dim(1), entry.features(spec)) << entry.name;
    EXPECT_EQ(backbone_of(*model, split.last_layer()).size() + (biased ? 2 : 1), weights_of(*model).size())
        << entry.name;
  }
}

TEST_F(WeightsTest, FeaturesAreJudgedAndWritten) {
  train("--run one --hidden 32");
  const double top1 = result_of("evaluate one")["top1"].get<double>();
  const Json knn = result_of("evaluate one --protocol knn --knn-k 30 --knn-temperature 0.2");
  EXPECT_EQ(knn["protocol"], "knn");
  EXPECT_EQ(knn["k"], 30);
  EXPECT_EQ(knn["temperature"], 0.2);
  EXPECT_EQ(knn["train_images"], 900);
  EXPECT_EQ(knn["images"], 300);
  EXPECT_EQ(knn["features"], 32);
  EXPECT_GT(knn["top1"], 0.2);
  EXPECT_GT(knn["top5"], knn["top1"]);
  const Json linear = result_of("evaluate one --protocol linear --probe-epochs 20");
  EXPECT_EQ(linear["epochs"], 20);
  EXPECT_EQ(linear["lr"], 0.1);
  EXPECT_GT(linear["top1"], top1 - 0.05);
  EXPECT_EQ(result_of("evaluate one --protocol linear --probe-epochs 20"), linear);
  ASSERT_EQ(run("evaluate one --protocol knn"), 0);
  EXPECT_MENTIONS(file("out"),
                  "kNN, k 200, temperature 0.1\n32 features of 900 training and 300 test images of shapes\ntop-1 ");
  expect_error("evaluate one --protocol knn --knn-k 901", 2,
               "--knn-k 901: more neighbours than the 900 training images");
  expect_error("evaluate one --protocol knn --knn-temperature 0", 2, "--knn-temperature");
  expect_error("evaluate one --protocol knn --logits x", 2, "--logits");

  ASSERT_EQ(run("embed one --out x.npy --labels y.npy"), 0) << file("err");
  EXPECT_MENTIONS(file("x.npy"), "'<f4', 'fortran_order': False, 'shape': (300, 32), }");
  EXPECT_EQ(file("x.npy").size(), 128u + 300 * 32 * 4);
  EXPECT_MENTIONS(file("y.npy"), "'<i8', 'fortran_order': False, 'shape': (300,), }");
  EXPECT_EQ(result_of("embed one --split train --out x.npy")["shape"], (Json{900, 32}));
  expect_error("embed one", 2, "--out FILE.npy");
  expect_error("embed one --out a --split val", 2, "'val'");
  expect_error("embed one --out nowhere/a", 1, "cannot write");
}

TEST_F(WeightsTest, ABackboneBeginsAnotherTraining) {
  train("--run one --hidden 32");
  ASSERT_EQ(run("export one --out whole.safetensors"), 0) << file("err");
  EXPECT_EQ(file("whole.safetensors"), file("runs/one/exported/model.safetensors"));
  ASSERT_EQ(run("export runs/one/checkpoints/last --backbone --out backbone.safetensors"), 0) << file("err");
  EXPECT_MENTIONS(file("backbone.md"),
                  "model[3] = nn.Identity()\nmodel.load_state_dict(load_file(\"backbone.safetensors\"), strict=True)");
  const Safetensors backbone = read_safetensors(path("backbone.safetensors"));
  EXPECT_EQ(backbone.tensors.size(), 2u);
  EXPECT_EQ(result_of("evaluate backbone.safetensors --protocol knn --knn-k 30"), [&] {
    Json same = result_of("evaluate runs/one/checkpoints/last --protocol knn --knn-k 30");
    same["weights"] = "backbone.safetensors";
    return same;
  }());
  fs::create_directories(path("runs/features/exported"));  // as after a training without labels
  fs::copy(path("runs/one/config.toml"), path("runs/features/config.toml"));
  fs::copy(path("backbone.safetensors"), path("runs/features/exported/backbone.safetensors"));
  EXPECT_EQ(result_of("embed features --out x.npy")["weights"], "runs/features/exported/backbone.safetensors");
  expect_error("evaluate backbone.safetensors", 2, "has no last layer '3'");
  expect_error("export one --out weights.bin", 2, "FILE.safetensors");

  // A learning rate of 0 does not change the weights.
  train("--run fine --weights backbone.safetensors --lr 0");
  EXPECT_MENTIONS(file("out"), "backbone.safetensors, with a new last layer");
  const Safetensors fine = read_safetensors(path("runs/fine/exported/model.safetensors"));
  for (const NamedTensor& t : backbone.tensors) EXPECT_EQ(values(fine[t.name]), values(t.tensor)) << t.name;
  train("--run same --weights one --lr 0 --strategy dp --devices 2");
  EXPECT_EQ(file("runs/same/exported/model.safetensors"), file("whole.safetensors"));
  expect_error("train --train-size 100 --hidden 16 --weights backbone.safetensors", 1,
               "tensor '1.weight' is f32 (32, 3072), the model's is f32 (16, 3072)");
  expect_error("train --train-size 100 --model fashion_cnn --weights backbone.safetensors", 1,
               "no tensor 'layer1.0.weight'");
  expect_error("train --train-size 100 --weights nowhere.safetensors", 1, "nowhere.safetensors: cannot open");
}

TEST_F(WeightsTest, TheBestOnesMayBeTestedAndExported) {
  // Overfitting: the validation is best in an early epoch.
  const std::string more = "--hidden 64 --lr 0.01 --epochs 12 --batch-size 32 ";
  train(more + "--run last");
  train(more + "--run best --export best");
  const std::string shown = file("out");
  EXPECT_MENTIONS(file("runs/best/config.toml"), "export = \"best\"");
  const Json best = parse_json(file("runs/best/checkpoints/best/state.json"))["state"],
             last = parse_json(file("runs/best/checkpoints/last/state.json"))["state"];
  ASSERT_LT(best["step"], last["step"]);
  EXPECT_MENTIONS(shown, concat(", of step ", best["step"].get<int64_t>(), ", the best"));
  EXPECT_EQ(file("runs/best/exported/model.safetensors"), file("runs/best/checkpoints/best/model.safetensors"));
  EXPECT_EQ(file("runs/last/exported/model.safetensors"), file("runs/best/checkpoints/last/model.safetensors"));
  const auto summary = [&](const std::string& run) {
    const std::string lines = file("runs/" + run + "/metrics.jsonl");
    return parse_json(lines.substr(lines.rfind("\n", lines.size() - 2) + 1));
  };
  EXPECT_EQ(summary("best")["exported_step"], best["step"]);
  EXPECT_EQ(summary("best")["step"], last["step"]);
  EXPECT_EQ(summary("best")["loss"], result_of("evaluate runs/best/checkpoints/best")["loss"]);
  EXPECT_EQ(summary("last")["loss"], result_of("evaluate runs/best/checkpoints/last")["loss"]);

  // Other ranks get the weights from rank 0; a finished run is exported again; an average replaces the weights.
  ASSERT_EQ(run("train --resume --run last --export best"), 0) << file("err");
  EXPECT_EQ(file("runs/last/exported/model.safetensors"), file("runs/best/exported/model.safetensors"));
  train(more + "--run ranks --ema 0.9 --export best --strategy ddp --devices 2");
  EXPECT_EQ(file("runs/ranks/exported/model.safetensors"), file("runs/ranks/checkpoints/best/ema.safetensors"));
  EXPECT_NEAR(summary("ranks")["loss"].get<double>(),
              result_of("evaluate runs/ranks/checkpoints/best")["loss"].get<double>(), 1e-5);

  // Damaged weights are named, with a way to continue.
  const std::string damaged = path("runs/last/checkpoints/best/model.safetensors");
  std::string bytes = file("runs/last/checkpoints/best/model.safetensors");
  bytes.back() = char(bytes.back() ^ 1);
  write_file(damaged, bytes);
  expect_error("train --resume --run last", 1, "train --run runs/last --resume --export last exports the last weights");
  EXPECT_EQ(run("train --resume --run last --export last"), 0) << file("err");
  EXPECT_MENTIONS(file("out"), concat(": step ", last["step"].get<int64_t>(), ", the last"));

  expect_error("train --export best --checkpoint-every 0", 2, "--export best: --checkpoint-every 0");
  expect_error("train --train-size 100 --test-size 10 --export best --val-size 0", 2,
               "--export best: needs a validation");
  expect_error("train --export newest", 2, "available: last best");
}

TEST_F(WeightsTest, ThoseThatAreNotFiniteAreRefused) {
  train("--run one --hidden 8");
  Safetensors weights = read_safetensors(path("runs/one/exported/model.safetensors"));
  for (NamedTensor& t : weights.tensors)
    if (t.name == "3.weight") t.tensor.span<float>()[5] = std::nanf("");
  write_safetensors(path("bad.safetensors"), weights.tensors, weights.metadata);
  for (const std::string command :
       {"evaluate bad.safetensors", "evaluate bad.safetensors --json", "evaluate bad.safetensors --protocol knn",
        "embed bad.safetensors --out x.npy", "export bad.safetensors --out x.safetensors"})
    expect_error(command, 1, "bad.safetensors: tensor '3.weight': holds NaN");
  EXPECT_FALSE(fs::exists(path("x.npy")) || fs::exists(path("x.safetensors")));
  for (NamedTensor& t : weights.tensors)
    for (float& x : t.tensor.span<float>()) x = 1e30f;
  write_safetensors(path("large.safetensors"), weights.tensors, weights.metadata);
  expect_error("evaluate large.safetensors", 1, "the outputs are too large");
  expect_error("embed large.safetensors --out x.npy --precision f16", 1, "the features of the test images: holds");
}

TEST(ExportedReadme, HasThePythonOfEveryResNet) {
  TrainOptions options;
  options.model.name = "resnet18";
  test::set(options, {{"train-size", "20"}, {"test-size", "10"}});
  const auto readme = [&] { return exported_readme(RunSetup(resolve(options)), "model.safetensors", false); };
  EXPECT_MENTIONS(
      readme(),
      "from torch import nn\nfrom torchvision.models import resnet18\n\nmodel = resnet18(num_classes=10)\n"
      "model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)\nmodel.maxpool = nn.Identity()\nmodel.load_state_dict(");
  test::set(options, {{"width", "16"}, {"no-stem-relu", "true"}});
  for (const char* part :
       {"from torchvision.models.resnet import BasicBlock\n\n", "model.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)\n",
        "model.relu = nn.Identity()",
        "model.bn1, model.inplanes = nn.BatchNorm2d(16), 16\nmodel.layer1 = model._make_layer(BasicBlock, 16, 2)\n",
        "model.layer4 = model._make_layer(BasicBlock, 128, 2, stride=2)\nmodel.fc = nn.Linear(128, "
        "10)\nmodel.load_state_dict("})
    EXPECT_MENTIONS(readme(), part);
  options.model.name = "mlp";
  EXPECT_MENTIONS(readme(), "from torch import nn\n\nmodel = nn.Sequential(");
}

TEST_F(WeightsTest, FloatsOfAnotherSizeAreConverted) {
  train("--run one --hidden 32");
  const Safetensors whole = read_safetensors(path("runs/one/exported/model.safetensors"));
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    std::vector<NamedTensor> other, rounded;
    for (const NamedTensor& t : whole.tensors) {
      other.push_back({t.name, cast(t.tensor, dtype)});
      rounded.push_back({t.name, cast(other.back().tensor, DType::f32)});
    }
    write_safetensors(path("other.safetensors"), other, whole.metadata);
    write_safetensors(path("rounded.safetensors"), rounded, whole.metadata);
    EXPECT_EQ(result_of("evaluate other.safetensors")["loss"], result_of("evaluate rounded.safetensors")["loss"])
        << name_of(dtype);
  }
  write_safetensors(path("other.safetensors"), {{"1.weight", zeros({32, 3072}, DType::i32)}}, whole.metadata);
  expect_error("evaluate other.safetensors --protocol knn", 1, "tensor '1.weight' is i32");
}

TEST_F(WeightsTest, FilesOfPyTorchAreReadAndWritten) {
  train("--run one --hidden 32");
  ASSERT_EQ(run("export one --out x.pth"), 0) << file("err");
  EXPECT_MENTIONS(file("x.pth.md"), "import torch\nfrom torch import nn\n\nmodel = ");
  EXPECT_MENTIONS(file("x.pth.md"), "model.load_state_dict(torch.load(\"x.pth\"), strict=True)");
  const Json loss = result_of("evaluate one")["loss"];
  EXPECT_EQ(result_of("evaluate x.pth")["loss"], loss);
  ASSERT_EQ(run("export x.pth --out again.safetensors"), 0) << file("err");
  EXPECT_EQ(file("again.safetensors"), file("runs/one/exported/model.safetensors"));

  // The same without what this project adds, below a prefix, beside other tensors.
  std::vector<NamedTensor> other = {{"module.projector.0.weight", zeros({3})}, {"module.projector.0.bias", zeros({3})}};
  for (NamedTensor& t : read_safetensors(path("again.safetensors")).tensors)
    other.push_back({"module.encoder." + t.name, t.tensor});
  write_pytorch(path("other.pth"), other);
  EXPECT_EQ(result_of("evaluate other.pth --train-size 900 --test-size 300 --hidden 32")["loss"], loss);
  EXPECT_MENTIONS(file("err"), "other.pth: not used: module.projector.* (2)");
  train("--run fine --hidden 32 --lr 0 --weights other.pth");
  EXPECT_MENTIONS(file("out"),
                  "other.pth, below 'module.encoder.'; not used: module.projector.* (2); says nothing of "
                  "its images' normalisation, these are by mean 0.");
  EXPECT_EQ(file("runs/fine/exported/model.safetensors"), file("again.safetensors"));
  expect_error("evaluate other.pth --model resnet18 --width 8", 1, "other.pth: no tensor 'conv1.weight'");
  expect_error("evaluate other.pth --hidden 16", 1, "tensor 'module.encoder.1.weight' is f32 (32, 3072), the model's");
}

// By what the names of tensors begin with.
TEST_F(WeightsTest, OneOfSeveralSetsOfWeightsIsChosen) {
  train("--run one --hidden 32");
  std::vector<NamedTensor> both;
  for (const NamedTensor& t : read_safetensors(path("runs/one/exported/model.safetensors")).tensors)
    both.push_back({"net." + t.name, zeros(t.tensor.shape())}), both.push_back({"net_ema." + t.name, t.tensor});
  write_safetensors(path("both.safetensors"), both);
  const std::string same = "both.safetensors --train-size 900 --test-size 300 --hidden 32";
  const Json loss = result_of("evaluate one")["loss"], other = result_of("evaluate " + same)["loss"];
  EXPECT_NE(other, loss);
  EXPECT_MENTIONS(file("err"), "both.safetensors: not used: net_ema.* (4)");
  EXPECT_MENTIONS(file("err"), "does not say how its images were normalised; here they are by mean 0.");
  EXPECT_EQ(result_of("evaluate --weights-key net " + same)["loss"], other);
  EXPECT_EQ(result_of("evaluate --weights-key net_ema " + same)["loss"], loss);
  train("--run fine --hidden 32 --lr 0 --weights both.safetensors --weights-key net_ema");
  EXPECT_EQ(file("runs/fine/exported/model.safetensors"), file("runs/one/exported/model.safetensors"));
  expect_error("evaluate --weights-key ema " + same, 1, "both.safetensors: has no set of weights 'ema', with tensors");
  expect_error("train --weights-key ema", 2, "--weights-key ema: needs --weights, the file that has them");
}

// Its images and classes are those that its tensors show, not those of a data set.
TEST_F(WeightsTest, AFileOfAnotherProgramIsExported) {
  TrainOptions options;
  options.model.name = "resnet18";
  test::set(options, {{"width", "8"}});
  const auto export_one = [&](const Shape& image, const std::string& name) {
    const auto model = find_model("resnet18").make({.image = image, .classes = 7, .settings = options.model.chosen()});
    write_pytorch(path(name), weights_of(*model));
    ASSERT_EQ(run(concat("export ", name, " --model resnet18 --width 8 --out ", name, ".safetensors")), 0)
        << file("err");
  };
  export_one({224, 224, 3}, "large");
  EXPECT_MENTIONS(file("large.md"),
                  "model = resnet18(num_classes=7)\nmodel.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)\n");
  EXPECT_MENTIONS(file("large.md"),
                  "Images are (N, 3, 224, 224) with values in [0, 1], normalised as in their training.");
  expect_error("train --train-size 20 --test-size 10 --model resnet18 --width 8 --weights large", 1,
               "the model's is f32 (8, 3, 3, 3); --stem chooses that of a ResNet");
  ASSERT_EQ(run("train --train-size 20 --test-size 10 --epochs 1 --batch-size 9 --model resnet18 --width 8 "
                "--stem imagenet --weights large"),
            0)
      << file("err");
  EXPECT_MENTIONS(file("out"), "large, with a new last layer (its own has 7 classes)");
  export_one({32, 32, 1}, "small");
  EXPECT_MENTIONS(file("small.md"), "model.conv1 = nn.Conv2d(1, 8, 3, 1, 1, bias=False)");
  EXPECT_MENTIONS(file("small.md"), "ringtape evaluate small.safetensors --model resnet18 --data NAME`");
  EXPECT_TRUE(read_safetensors(path("small.safetensors")).metadata.empty());
}

TEST_F(WeightsTest, FilesOfOtherFormatsSayHowTheyAreConverted) {
  write_file(path("x.npz"), "PK\x03\x04" + std::string(1000, 'x'));
  expect_error("evaluate x.npz", 1, "safetensors.numpy.save_file(dict(numpy.load(\"x.npz\")), \"x.safetensors\")'");
  write_file(path("x.h5"), "\x89HDF\r\n\x1a\n" + std::string(1000, 'x'));
  expect_error("evaluate x.h5", 1,
               "an HDF5 file, as Keras writes them; weights are read from safetensors and PyTorch's");
  expect_error("train --train-size 100 --weights x.h5", 1, "convert it with the program that wrote it");
  write_file(path("x.safetensors"), "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 46\n");
  expect_error("evaluate x.safetensors", 1, "x.safetensors: a pointer of Git LFS; fetch the file with `git lfs pull`");
  ASSERT_EQ(std::system(concat("cd ", folder_.string(), " && tar --create --file x.pth.tar x.h5").c_str()), 0);
  expect_error("evaluate x.pth.tar", 1, "x.pth.tar: a tar archive; unpack it first; weights are read from safetensors");
}

// A small file that claims a large network or data set.
TEST_F(WeightsTest, SizesThatAFileClaimsAreComparedBeforeAnythingIsMade) {
  const auto claim = [&](const char* name, const char* value, const std::vector<NamedTensor>& tensors) {
    write_safetensors(path("x.safetensors"), tensors, {{"ringtape.model", "mlp"}, {concat("ringtape.", name), value}});
  };
  claim("hidden", "200000", {});
  expect_error("evaluate x.safetensors", 1, "no tensor '1.weight'; was it trained with another --model?");
  claim("hidden", "200000", {{"1.weight", zeros({32, 3072})}});
  expect_error("evaluate x.safetensors", 1, "tensor '1.weight' is f32 (32, 3072), the model's is f32 (200000, ...)");
  claim("hidden", "200000", {{"1.weight", zeros({200'000, 1})}});
  expect_error("evaluate x.safetensors", 1, "tensor '1.weight' is f32 (200000, 1), the model's is f32 (200000, 3072)");
  claim("width", "1024", {});
  expect_error("evaluate x.safetensors --model resnet18", 1, "no tensor 'conv1.weight'");
  claim("test-size", "3000000", {{"1.weight", zeros({128, 3072})}});
  expect_error("evaluate x.safetensors", 2,
               "asks for 3,000,000 generated images; if this is intended, confirm it with --test-size 3000000");
  rusage children{}, own{};  // a child begins as large as this process is
  ::getrusage(RUSAGE_CHILDREN, &children), ::getrusage(RUSAGE_SELF, &own);
  EXPECT_LE(children.ru_maxrss, std::max(own.ru_maxrss, 500'000L));  // KiB, of the largest process
}

}  // namespace
}  // namespace ringtape
