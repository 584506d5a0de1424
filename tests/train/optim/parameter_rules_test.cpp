// Parameters that are frozen, or trained at rates and with weight decay of their own: optimizers beside PyTorch's
// groups of parameters (tests/fixtures/make_groups.py), layers of networks, and trainings as users run them.
#include "autograd/create.h"
#include "kernels/copy.h"
#include "nn/freeze.h"
#include "nn/nn.h"
#include "tests/support/jobs.h"
#include "train/optim/adam.h"
#include "train/optim/lars.h"
#include "train/optim/muon.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

using namespace test;

const Safetensors& groups() {
  static const Safetensors file = read_safetensors(concat(RINGTAPE_SOURCE_DIR, "/tests/fixtures/groups.safetensors"));
  return file;
}

std::unique_ptr<Optimizer> optimizer_of(const std::string& name, FlatParameters& flat) {
  if (name == "sgd")
    return std::make_unique<Sgd>(flat, Sgd::Options{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  if (name == "lars")
    return std::make_unique<Lars>(flat, Lars::Options{.momentum = 0.9, .weight_decay = 0.1, .eta = 0.02});
  if (name == "muon")
    return std::make_unique<Muon>(flat, Muon::Options{.momentum = 0.95, .weight_decay = 0.1, .rest_lr = 0.1});
  return std::make_unique<Adam>(flat, name == "adam" ? Adam::Options{.weight_decay = 0.1}
                                                     : Adam::Options{.weight_decay = 0.2, .decoupled = true});
}

TEST(ParameterRules, AreTheGroupsOfPyTorch) {
  const std::map<std::string, double> rates = {
      {"sgd", 0.05}, {"adam", 0.01}, {"adamw", 0.01}, {"lars", 0.3}, {"muon", 0.02}};
  for (const auto& [name, lr] : rates) {
    nn::Sequential model;
    model.add<nn::Linear>(6, 5).add<nn::Tanh>().add<nn::Linear>(5, 4).add<nn::Tanh>().add<nn::Linear>(4, 3);
    nn::cast_to(model, DType::f64);
    for (const nn::Named& p : nn::named_parameters(model)) copy(*p.tensor, groups()[concat("initial/", p.name)]);
    nn::freeze(model, [](const std::string& n) { return n.starts_with("0."); });
    EXPECT_EQ(nn::named_parameters(model).size(), 4u);
    EXPECT_EQ(nn::all_parameters(model).size(), 6u);
    EXPECT_EQ(nn::count_parameters(model), 74);
    FlatParameters flat(model);
    const auto optimizer = optimizer_of(name, flat);
    optimizer->set_rules({{.lr_factor = 0.5},
                          {.lr_factor = 0.5, .decay_factor = 0},
                          {.lr_factor = 3},
                          {.lr_factor = 3, .decay_factor = 0}});
    const Tensor x = groups()["x"], y = groups()["y"];
    for (int64_t step = 0; step < x.dim(0); ++step) {
      optimizer->zero_grad();
      backward(cross_entropy(model(reshape(slice(x, 0, step, step + 1), {7, 6})),
                             reshape(slice(y, 0, step, step + 1), {7})));
      optimizer->step(lr);
    }
    for (const nn::Named& p : nn::all_parameters(model))
      expect_close(*p.tensor, groups()[concat(name, "/final/", p.name)], 1e-9, 1e-11, concat(name, ", ", p.name));
  }
}

TEST(ParameterRules, ALearningRateOfZeroAndFixedOnesHold) {
  nn::Sequential model;
  model.add<nn::Linear>(3, 3).add<nn::Linear>(3, 3).add<nn::Linear>(3, 3);
  FlatParameters flat(model);
  Sgd optimizer(flat, {.weight_decay = 0.1});
  optimizer.set_rules({{}, {}, {.lr_factor = 0}, {.lr_factor = 0}, {.lr_factor = 7}, {}});
  optimizer.fix_lr("2.", 0.25);
  const Tensors before = [&] {
    Tensors out;
    for (const nn::Named& p : nn::named_parameters(model)) out.push_back(p.tensor->detach().copy_to(Device{}));
    return out;
  }();
  backward(sum(model(ones({2, 3}))));
  optimizer.step(0.5);
  size_t i = 0;
  for (const nn::Named& p : nn::named_parameters(model)) {
    const double rate = i < 2 ? 0.5 : i < 4 ? 0 : 0.25;
    const Tensor g = grad(*p.tensor) + before[i] * 0.1;
    expect_close(p.tensor->detach(), before[i] - g * rate, 1e-6, 1e-6, p.name);
    ++i;
  }
}

TEST(Freeze, EndsTheGraphAndStopsBatchNorm) {
  manual_seed(5);
  nn::ResNet model({.width = 8});
  const auto head_only = frozen_by("backbone", model, "fc");
  nn::freeze(model, head_only);
  const std::vector<nn::Named> trained = nn::named_parameters(model);
  ASSERT_EQ(trained.size(), 2u);
  EXPECT_EQ(trained[0].name, "fc.weight");
  model.train();
  const Tensor x = randn({2, 16, 16, 3});
  std::vector<std::vector<double>> before;
  for (const nn::Named& b : nn::named_buffers(model)) before.push_back(values(*b.tensor));
  EXPECT_FALSE(requires_grad(model.features(x)));
  const Tensor y = model(x);
  EXPECT_TRUE(requires_grad(y));
  EXPECT_EQ(used_leaves(y).size(), 2u);
  size_t i = 0;
  for (const nn::Named& b : nn::named_buffers(model)) EXPECT_EQ(values(*b.tensor), before[i++]) << b.name;
  model.train(false);
  EXPECT_EQ(values(model(x)), values(y));
}

TEST(Freeze, ABatchNormMayBeAllThereIs) {
  nn::BatchNorm norm(3);
  nn::freeze(norm, [](const std::string&) { return true; });
  norm.train();
  (void)norm(randn({4, 3}));
  EXPECT_EQ(norm.running().batches.item(), 0);
}

TEST(Freeze, ABatchNormThatIsPartlyFrozenGoesOnCounting) {
  nn::Sequential model;
  model.add<nn::BatchNorm>(3).add<nn::BatchNorm>(3);
  nn::freeze(model, [](const std::string& n) { return n == "0.weight" || n.starts_with("1."); });
  const auto& first = dynamic_cast<nn::BatchNorm&>(model[0]);
  const auto& second = dynamic_cast<nn::BatchNorm&>(model[1]);
  model.train();
  (void)model(randn({4, 3}));
  EXPECT_EQ(first.running().batches.item(), 1);
  EXPECT_EQ(second.running().batches.item(), 0);
}

TEST(Freeze, PatternsAreGlobsAndNamesOfModules) {
  nn::ResNet model({.width = 8});
  const auto some = frozen_by("conv1.*,layer1,*.bn2.bias", model, "fc");
  for (const char* name : {"conv1.weight", "layer1.0.conv1.weight", "layer1.1.bn2.weight", "layer4.0.bn2.bias"})
    EXPECT_TRUE(some(name)) << name;
  for (const char* name : {"bn1.weight", "layer2.0.conv1.weight", "layer4.0.bn2.weight", "fc.weight"})
    EXPECT_FALSE(some(name)) << name;
  EXPECT_EQ(message_of<UsageError>([&] { (void)frozen_by("conv1.*,fc.wieght", model, "fc"); }),
            "--freeze: 'fc.wieght' fits no parameter; the nearest names are fc.weight, bn1.weight, fc.bias");
  EXPECT_MENTIONS(message_of<UsageError>([&] { (void)frozen_by("conv1,", model, "fc"); }), "'' fits no parameter");
  EXPECT_EQ(message_of<UsageError>([&] { (void)frozen_by("*", model, "fc"); }),
            "--freeze *: no parameter is left to be trained");
}

std::map<std::string, int64_t> depths(nn::Module& model, const std::string& head) {
  const std::vector<int64_t> all = layer_depths(model, head);
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < all.size(); ++i) out[nn::all_parameters(model)[i].name] = all[i];
  return out;
}

// As timm counts the layers of its ResNets: the stem, each block, the last layer.
TEST(LayerDepths, BlocksAreLayersAndNormsBelongToTheOneBefore) {
  nn::ResNet resnet({.width = 8});
  const auto of_resnet = depths(resnet, "fc");
  const std::map<std::string, int64_t> expected = {{"conv1.weight", 9},
                                                   {"bn1.bias", 9},
                                                   {"layer1.0.conv1.weight", 8},
                                                   {"layer1.0.bn2.weight", 8},
                                                   {"layer1.1.conv1.weight", 7},
                                                   {"layer2.0.downsample.0.weight", 6},
                                                   {"layer4.1.bn2.bias", 1},
                                                   {"fc.weight", 0},
                                                   {"fc.bias", 0}};
  for (const auto& [name, depth] : expected) EXPECT_EQ(of_resnet.at(name), depth) << name;
  nn::freeze(resnet, frozen_by("layer1", resnet, "fc"));
  EXPECT_EQ(depths(resnet, "fc"), of_resnet);

  nn::Sequential mlp;
  mlp.add<nn::Linear>(3, 3).add<nn::ReLU>().add<nn::BatchNorm>(3).add<nn::Linear>(3, 3).add<nn::Linear>(3, 2);
  const std::map<std::string, int64_t> of_mlp = {{"0.weight", 2}, {"0.bias", 2}, {"2.weight", 2}, {"2.bias", 2},
                                                 {"3.weight", 1}, {"3.bias", 1}, {"4.weight", 0}, {"4.bias", 0}};
  EXPECT_EQ(depths(mlp, "4"), of_mlp);
  EXPECT_EQ(depths(mlp, ""), of_mlp);

  nn::freeze(mlp, [](const std::string& n) { return n == "3.weight"; });
  const std::vector<ParameterRule> rules =
      rules_of({.freeze = "3.weight", .head_lr = 0.4, .layer_decay = 0.5, .no_decay_norms = true}, mlp, "4", 0.1);
  const std::vector<ParameterRule> wanted = {{.lr_factor = 0.25},
                                             {.lr_factor = 0.25, .decay_factor = 0},
                                             {.lr_factor = 0.25, .decay_factor = 0},
                                             {.lr_factor = 0.25, .decay_factor = 0},
                                             {.lr_factor = 0.5, .decay_factor = 0},
                                             {.lr_factor = 4},
                                             {.lr_factor = 4, .decay_factor = 0}};
  EXPECT_EQ(rules, wanted);
  const ParameterRule bias{.lr_factor = 20, .decay_factor = 0.05};
  EXPECT_EQ(rules_of({.head_lr = 0.4, .bias_lr = 2}, mlp, "4", 0.1),
            (std::vector<ParameterRule>{{}, bias, bias, bias, bias, {.lr_factor = 4}, bias}));
  EXPECT_MENTIONS(message_of<UsageError>([&] { (void)rules_of({.bias_lr = 2}, mlp, "", 0); }),
                  "--bias-lr: needs a --lr above 0");
  EXPECT_MENTIONS(message_of<UsageError>([&] { (void)rules_of({.head_lr = 0.4}, mlp, "", 0.1); }),
                  "--head-lr: this model has no last layer");
  EXPECT_MENTIONS(message_of<UsageError>([&] { (void)rules_of({.head_lr = 0.4}, mlp, "4", 0); }),
                  "--head-lr: needs a --lr above 0");
}

const std::string kTuning =
    "train --data shapes --train-size 300 --val-size 60 --test-size 20 --batch-size 24 --hidden 16 --threads 1 "
    "--device cpu --workers 0 --epochs 2 --ema 0.9 --weight-decay 0.1 ";
const std::string kRules = "--freeze 1.* --head-lr 0.01 --lr 0.002 --layer-decay 0.5 --no-decay-norms ";

class FineTuneTest : public JobTest {
 protected:
  Safetensors exported(const std::string& run) const {
    return read_safetensors((run_folder(run) / "exported/model.safetensors").string());
  }
};

TEST_F(FineTuneTest, RanksAndStrategiesTrainTheSameParameters) {
  ASSERT_EQ(run("ringtape " + kTuning + "--epochs 1 --run base"), 0) << log();
  const std::string from = "--weights runs/base/exported/model.safetensors " + kRules;
  for (const char* rule : {"sgd", "adam", "lars", "muon"}) {
    const std::string training = concat("ringtape ", kTuning, from, "--optimizer ", rule, " --deterministic ");
    ASSERT_EQ(run(training + "--shares 6 --run one"), 0) << log();
    for (const char* ranks : {"2", "3"}) {
      ASSERT_EQ(run(concat(training, "--shares 6 --run more --overwrite --devices ", ranks)), 0) << log();
      EXPECT_TRUE(bytes("more") == bytes("one")) << rule << ", " << ranks;
    }
    ASSERT_EQ(run(training + "--shares 6 --run more --overwrite --devices 2 --elastic"), 0) << log();
    EXPECT_TRUE(bytes("more") == bytes("one")) << rule << ", elastic";
    ASSERT_EQ(run(training + "--devices 2 --run ddp --overwrite"), 0) << log();
    EXPECT_LT(difference("ddp", "one"), 1e-4);
    for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
      ASSERT_EQ(run(concat(training, "--devices 2 --run sharded --overwrite --strategy ", strategy)), 0) << log();
      EXPECT_TRUE(bytes("sharded") == bytes("ddp")) << rule << ", " << strategy;
    }
    ASSERT_EQ(run(training + "--devices 2 --run dp --overwrite --strategy dp"), 0) << log();
    EXPECT_LT(difference("dp", "one"), 1e-4);
    fs::remove_all(run_folder("one"));
  }
  const Safetensors base = exported("base"), tuned = exported("ddp");
  const auto same = [&](const std::string& name) { return values(base[name]) == values(tuned[name]); };
  EXPECT_TRUE(same("1.weight"));
  EXPECT_TRUE(same("1.bias"));
  EXPECT_FALSE(same("3.weight"));
}

TEST_F(FineTuneTest, GoesOnFromTheMiddleWithTheSameBits) {
  const std::string training = "ringtape " + kTuning + kRules;
  for (const char* ranks : {"", "--devices 2 --strategy zero1 "}) {
    ASSERT_EQ(run(training + ranks + "--run whole --overwrite"), 0) << log();
    EXPECT_MENTIONS(log(), " of them trained)");
    ASSERT_EQ(run(training + ranks + "--run parts --overwrite --max-steps 8"), 0) << log();
    ASSERT_EQ(run(training + ranks + "--run parts --resume --max-steps 0"), 0) << log();
    EXPECT_TRUE(bytes("parts") == bytes("whole"));
  }
  EXPECT_EQ(run(training + "--run parts --resume --layer-decay 0.6"), 2);
  EXPECT_MENTIONS(log(), "--layer-decay");
}

TEST_F(FineTuneTest, ALinearProbeTrainsTheLastLayerAlone) {
  const std::string resnet =
      "train --data shapes --train-size 60 --val-size 0 --test-size 20 --batch-size 20 --model resnet18 --width 8 "
      "--threads 1 --device cpu --workers 0 --epochs 1 ";
  ASSERT_EQ(run("ringtape " + resnet + "--run base"), 0) << log();
  const std::string probe = resnet + "--weights runs/base/exported/model.safetensors --freeze backbone --seed 2 ";
  ASSERT_EQ(run("ringtape " + probe + "--run probe"), 0) << log();
  ASSERT_EQ(run("ringtape " + probe + "--run ranks --devices 2 --sync-bn"), 0) << log();
  const Safetensors base = exported("base"), tuned = exported("probe");
  for (const NamedTensor& t : base.tensors)
    EXPECT_EQ(values(t.tensor) == values(tuned[t.name]), !t.name.starts_with("fc.")) << t.name;
  EXPECT_LT(difference("ranks", "probe"), 1e-5);
  for (const char* recipe : {"linear_probe", "fine_tune"}) {
    ASSERT_EQ(run(concat("ringtape ", resnet, "--config ", RINGTAPE_SOURCE_DIR, "/configs/", recipe,
                         ".toml --weights runs/base/exported/model.safetensors --run ", recipe)),
              0)
        << log();
    EXPECT_EQ(values(base["layer1.0.conv1.weight"]) == values(exported(recipe)["layer1.0.conv1.weight"]),
              recipe == std::string("linear_probe"));
  }
  EXPECT_TRUE(log().find("random weights") == std::string::npos) << log();
  ASSERT_EQ(run("ringtape " + resnet + "--freeze backbone --run random"), 0) << log();
  EXPECT_MENTIONS(log(), "--freeze backbone: these layers keep random weights; --weights FILE gives trained ones");
  EXPECT_EQ(run("ringtape " + resnet + "--freeze layr1.0.*"), 2);
  EXPECT_MENTIONS(log(), "--freeze: 'layr1.0.*' fits no parameter; the nearest names are layer1.0.conv1.weight, ");
  EXPECT_EQ(run("ringtape pretrain --method simclr --data shapes --freeze backbone"), 2);
  ASSERT_EQ(
      run("ringtape pretrain --method simclr --data shapes --train-size 60 --model mlp --hidden 8 --batch-size 20 "
          "--epochs 1 --no-decay-norms --weight-decay 0.5 --optimizer sgd --knn-k 5 --test-size 20"),
      0)
      << log();
}

}  // namespace
}  // namespace ringtape
