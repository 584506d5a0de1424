// Training without labels from the command line: the ringtape binary, as users run it.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/registry.h"
#include "nn/ssl/method.h"
#include "tests/support/processes.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"
#include "train/model/methods.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

const std::string kTiny =
    " --data shapes --train-size 136 --test-size 40 --epochs 2 --warmup-epochs 0.5 "
    "--batch-size 32"
    " --knn-k 20 --lr 0.01 --threads 1 ";

// The flags that only some methods have, and the network.
std::string own_flags(const std::string& flags) {
  std::string out, model = " --model mlp --hidden 12";
  for (const nn::MethodEntry& entry : nn::methods())
    if ((flags + " ").find(concat("--method ", entry.name, " ")) != std::string::npos) {
      for (const auto& [name, value] : {std::pair{"queue", " 64"},
                                        {"prototypes", " 6"},
                                        {"projection-hidden", " 16"},
                                        {"projection-dim", " 8"},
                                        {"prediction-hidden", " 8"},
                                        {"decoder-width", " 8"},
                                        {"decoder-heads", " 2"}})
        if (Settings settings = entry.settings; find_field(settings, name)) out += concat(" --", name, value);
      if (entry.model) model = concat(" --model ", entry.model, " --width 8 --heads 2 --depth 2");
    }
  return model + out + " ";
}

class Pretrain : public testing::Test {
 protected:
  struct Result {
    int code;
    std::string text;
  };
  Result run(const std::string& arguments) {
    const std::string command = concat("cd ", folder_.path(), " && env -u RINGTAPE_DATA_DIR ", RINGTAPE_BINARY, " ",
                                       arguments, " >log 2>&1 </dev/null");
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read_file(path("log"))};
  }
  Result pretrain(const std::string& flags) { return run("pretrain" + kTiny + own_flags(flags) + flags); }
  std::string path(const std::string& name) const { return concat(folder_.path(), "/", name); }
  Json summary(const std::string& name) const {
    std::istringstream lines(read_file(path(name + "/metrics.jsonl")));
    Json last;
    for (std::string line; std::getline(lines, line);) last = parse_json(line);
    EXPECT_EQ(last["split"], "summary");
    return last;
  }

  test::TemporaryFolder folder_;
};

// With a temperature so high that all images look alike, the loss is that of a collapse: of all ranks' images.
TEST_F(Pretrain, ACollapseIsSeenOnOneRankAndOnSeveral) {
  for (const char* ranks : {"--devices 1", "--devices 2 --gather-distributed"}) {
    const Result r =
        pretrain(concat("--method simclr --temperature 1000000 --epochs 1 --train-size 600 --batch-size 10 "
                        "--limit-train-batches 55 --overwrite --run x ",
                        ranks));
    EXPECT_EQ(r.code, 0) << r.text;
    EXPECT_MENTIONS(r.text, "the training has collapsed");
  }
}

void expect_same_tensors(const std::string& a, const std::string& b) {
  const Safetensors x = read_safetensors(a), y = read_safetensors(b);
  ASSERT_EQ(x.tensors.size(), y.tensors.size());
  for (size_t i = 0; i < x.tensors.size(); ++i)
    EXPECT_TRUE(test::same_bytes(x.tensors[i].tensor, y.tensors[i].tensor)) << x.tensors[i].name;
}

// Repeats the second epoch, from a checkpoint after the first epoch, and from one in the middle of the second.
TEST_F(Pretrain, ResumesEveryMethodBitwise) {
  std::vector<std::string> cases = names_of(nn::methods());
  for (const char* more : {"moco --queue-per-view", "swav --optimizer adam --freeze-prototypes 1",
                           "simsiam --fixed-prediction-lr --schedule cosine --projection-norm plain"})
    cases.emplace_back(more);
  for (const std::string& method : cases) {
    SCOPED_TRACE(method);
    const std::string flags = concat(" --online-probe --checkpoint-steps 3 --keep 9 --run ./whole --method ", method);
    const Result whole = pretrain(flags);
    ASSERT_EQ(whole.code, 0) << whole.text;
    for (const char* step : {"4", "6"}) {
      fs::copy(path("whole"), path("again"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      for (const auto& entry : fs::directory_iterator(path("again/checkpoints")))
        if (entry.path().filename().string() > concat("step-0000000", step) && !entry.is_symlink())
          fs::remove_all(entry.path());
      const Result again = run("pretrain --run ./again --resume");
      ASSERT_EQ(again.code, 0) << again.text;
      EXPECT_MENTIONS(again.text, concat("step-0000000", step));
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        expect_same_tensors(concat(path("whole"), "/checkpoints/last/", file),
                            concat(path("again"), "/checkpoints/last/", file));
      EXPECT_EQ(summary("whole")["top1"], summary("again")["top1"]);
      EXPECT_EQ(summary("whole")["train_loss"], summary("again")["train_loss"]);
      fs::remove_all(path("again"));
    }
    fs::remove_all(path("whole"));
  }
}

TEST_F(Pretrain, AFinishedOneEndsAgainWithoutItsFigures) {
  ASSERT_EQ(pretrain("--method simsiam --run ./a").code, 0);
  fs::remove(path("a/metrics.jsonl"));
  const Result again = run("pretrain --run ./a --resume");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_MENTIONS(again.text, "continues without the missing metrics");
  EXPECT_FALSE(summary("a").contains("top1"));
}

TEST_F(Pretrain, TrainsEveryMethodIn16Bits) {
  for (const std::string& method : names_of(nn::methods()))
    for (const char* precision : {"bf16", "f16"}) {
      const Result r =
          pretrain(concat("--epochs 1 --overwrite --run ./half --precision ", precision, " --method ", method));
      EXPECT_EQ(r.code, 0) << method << " in " << precision << ": " << r.text;
    }
}

// The first of four warm-up steps has a quarter of the learning rate, except for the prediction head.
TEST_F(Pretrain, APredictionMayLearnWithoutSchedule) {
  const std::string flags =
      "--method simsiam --optimizer sgd --momentum 0 --epochs 1 --warmup-epochs 1 --checkpoint-steps 1 --keep 9 --lr 1 "
      "--run ./";
  ASSERT_EQ(pretrain(flags + "start --lr 0").code, 0);
  ASSERT_EQ(pretrain(flags + "scheduled").code, 0);
  ASSERT_EQ(pretrain(flags + "fixed --fixed-prediction-lr").code, 0);
  const auto read = [&](const char* run) {
    return read_safetensors(path(concat(run, "/checkpoints/step-00000001/model.safetensors"))).tensors;
  };
  const auto start = read("start"), scheduled = read("scheduled"), fixed = read("fixed");
  int predictions = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    const std::string& name = start[i].name;
    if (!is_float(start[i].tensor.dtype()) || name.find("running") != std::string::npos) continue;
    const bool prediction = name.starts_with("prediction.");
    predictions += prediction;
    const Tensor step = scheduled[i].tensor - start[i].tensor;
    test::expect_close(fixed[i].tensor - start[i].tensor, step * (prediction ? 4.0 : 1.0), 1e-3, 1e-6, name);
  }
  EXPECT_EQ(predictions, 5);
}

TEST_F(Pretrain, TellsWhatItHasFound) {
  const Result r = pretrain("--method simclr --run ./a");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_MENTIONS(r.text, "SimCLR(temperature 0.5) of mlp");
  EXPECT_MENTIONS(r.text, "epoch 2/2    knn    top-1");
  const Json last = summary("a");
  EXPECT_EQ(last["method"], "simclr");
  EXPECT_EQ(last["step"], 8);  // the 8 images of a fifth batch are skipped
  EXPECT_MENTIONS(last["protocol"].get<std::string>(), "kNN, k 20, temperature 0.1");
  EXPECT_GE(last["best_top1"].get<double>(), last["top1"].get<double>());
  EXPECT_LACKS(read_file(path("a/config.toml")), "label-smoothing");
  EXPECT_LACKS(read_file(path("a/config.toml")), "crop-padding");
  const Safetensors backbone = read_safetensors(path("a/exported/backbone.safetensors"));
  ASSERT_EQ(backbone.tensors.size(), 2u);
  EXPECT_EQ(backbone.tensors[0].name, "1.bias");
  EXPECT_EQ(backbone.tensors[1].name, "1.weight");
  EXPECT_EQ(backbone.metadata.at("ringtape.model"), "mlp");
  const Result same = run("pretrain --config a/config.toml --run ./b");
  ASSERT_EQ(same.code, 0) << same.text;
  expect_same_tensors(path("a/exported/backbone.safetensors"), path("b/exported/backbone.safetensors"));
}

TEST_F(Pretrain, RanksMakeTheSame) {
  const std::string flags = " --strategy ddp --devices 2 --transport shm --sync-bn";
  ASSERT_EQ(pretrain("--method moco --run ./one --bn-splits 1").code, 0);
  const Result two = pretrain("--method moco --run ./two" + flags);
  ASSERT_EQ(two.code, 0) << two.text;
  const Safetensors a = read_safetensors(path("one/exported/backbone.safetensors")),
                    b = read_safetensors(path("two/exported/backbone.safetensors"));
  for (size_t i = 0; i < a.tensors.size(); ++i)
    test::expect_close(b.tensors[i].tensor, a.tensors[i].tensor, 1e-5, 1e-6, a.tensors[i].name);
  EXPECT_EQ(summary("one")["top1"], summary("two")["top1"]);
  const Result replicas = pretrain("--method simclr --run ./dp --strategy dp --devices 2");
  EXPECT_EQ(replicas.code, 0) << replicas.text;
}

TEST_F(Pretrain, KnnMayKnowFewerImages) {
  ASSERT_EQ(pretrain("--method simclr --run ./all").code, 0);
  ASSERT_EQ(pretrain("--method simclr --run ./as-many --knn-bank 136").code, 0);
  const Result fewer = pretrain("--method simclr --run ./fewer --knn-bank 30");
  ASSERT_EQ(fewer.code, 0) << fewer.text;
  EXPECT_EQ(summary("as-many")["top1"], summary("all")["top1"]);
  EXPECT_MENTIONS(summary("all")["protocol"].get<std::string>(), ", all training images");
  EXPECT_MENTIONS(summary("fewer")["protocol"].get<std::string>(), ", 30 of the 136 training images");
  EXPECT_MENTIONS(read_file(path("fewer/config.toml")), "knn-bank = 30\n");
  EXPECT_EQ(read_file(path("fewer/exported/backbone.safetensors")),
            read_file(path("all/exported/backbone.safetensors")));
  // `evaluate` gives the same.
  const Result again = run("evaluate ./fewer --protocol knn --knn-k 20 --knn-bank 30 --json");
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(parse_json(again.text)["top1"], summary("fewer")["top1"]);
  EXPECT_EQ(parse_json(again.text)["train_images"], 30);
  EXPECT_MENTIONS(run("evaluate ./fewer --protocol linear --knn-bank 30").text, "--knn-bank: needs --protocol knn");
}

TEST_F(Pretrain, ARunExportsItsFeatures) {
  ASSERT_EQ(pretrain("--method byol --run ./a").code, 0);
  const Result plain = run("export ./a --out plain.safetensors"),
               backbone = run("export ./a --backbone --out backbone.safetensors");
  ASSERT_EQ(plain.code, 0) << plain.text;
  EXPECT_MENTIONS(plain.text, "saved  plain.safetensors, without 3");
  EXPECT_EQ(read_file(path("plain.safetensors")), read_file(path("backbone.safetensors")));
}

// The backbone is the same as without a probe; the probe learns.
TEST_F(Pretrain, AProbeLearnsAndTeachesNothing) {
  ASSERT_EQ(pretrain("--method byol --run ./without").code, 0);
  const Result with = pretrain("--method byol --online-probe --run ./with");
  ASSERT_EQ(with.code, 0) << with.text;
  expect_same_tensors(path("without/exported/backbone.safetensors"), path("with/exported/backbone.safetensors"));
  EXPECT_MENTIONS(with.text, "epoch 2/2    probe  loss");
  EXPECT_EQ(summary("with")["train_loss"], summary("without")["train_loss"]);
  EXPECT_TRUE(summary("with").contains("probe_top1"));
  EXPECT_TRUE(summary("with").contains("train_top1"));
  const Result replicas = pretrain("--method byol --online-probe --run ./dp --strategy dp --devices 2");
  EXPECT_EQ(replicas.code, 0) << replicas.text;
}

TEST_F(Pretrain, SmallViewsPredictTheCodesOfTheOthers) {
  const Result r =
      run("pretrain --method swav --data shapes --train-size 70 --test-size 40 --width 2 --epochs 1 --warmup-epochs 0 "
          "--batch-size 32 --knn-k 9"
          " --small-views 2 --small-view-size 12 --projection-hidden 16 --projection-dim 8 --prototypes 6 --lr 0.001 "
          "--run ./a");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_MENTIONS(r.text, "epoch 1/1    knn");
}

TEST_F(Pretrain, WarnsOfCollapse) {
  // All scores are equal: the loss is ln 6.
  const Result r = pretrain("--method swav --temperature 1e5 --epochs 13 --knn-every 0 --run ./a");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_MENTIONS(r.text, "the loss of epoch 13 was 1.79");
  EXPECT_MENTIONS(r.text, "do not depend on the image");
  EXPECT_LACKS(r.text, "the loss of epoch 12 was");  // 48 steps: too early to tell
}

TEST_F(Pretrain, RefusesWhatCannotBe) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "--method: expected one of"},
      {"--method simcrl", "did you mean simclr?"},
      {"--method moco --queue 100",
       "--queue 100: moco fills the queue with whole batches; expected a multiple of --batch-size 32"},
      {"--method moco --queue 0", "--queue: expected a whole number of at least 1"},
      {"--method swav --queue 100", "--queue 100"},
      {"--method moco --bn-splits 5", "--bn-splits 5: expected a divisor of 32, the number of images"},
      {"--method moco --bn-splits 32 --strategy dp --devices 2",
       "expected a divisor of 16, the number of images per device"},
      {"--method simclr --knn-k 200", "--knn-k 200: more neighbours than the 136 training images"},
      {"--method simclr --knn-bank 19", "--knn-k 20: more neighbours than the 19 images of --knn-bank"},
      {"--method simclr --temperature 0", "--temperature: expected a number above 0, got '0'"},
      {"--method simclr --projection-layers 0",
       "expected a whole number of at least 1 and at most 1000000000, got '0'"},
      {"--method simclr --projection-dim 0", "--projection-dim: expected a whole number of at least 1"},
      {"--method byol --prediction-hidden 0", "--prediction-hidden: expected a whole number of at least 1"},
      {"--method moco --queue -1", "--queue: expected a whole number of at least 1"},
      {"--method simclr --base-lr 0", "--base-lr: expected a number above 0"},
      {"--method simclr --knn-temperature 0", "a number of at least 1e-06"},
      {"--method simclr --gather-distributed", "--gather-distributed: needs several ranks"},
      {"--method simclr --batch-size 1", "--batch-size 1: simclr compares the images of a batch"},
      {"--method simclr --batch-size 200", "--batch-size 200: larger than the 136"},
      {"--method simclr --views 3", "--views 3: simclr takes 2 views"},
      {"--method simclr --small-views 2", "--small-views 2: simclr compares exactly two views"},
      {"--method swav --small-views 2",
       "--small-view-size 16: mlp accepts only one image size; use a model for any size, such as resnet18, or 32"},
      {"--method simclr --crop-low 0.9 --crop-high 0.5", "--crop-low 0.9: above"},
      {"--method simclr --preset seed00", "did you mean seed000?"},
      {"--method vicreg --preset seed000", "has no recipe for vicreg"},
      {"--method simclr --label-smoothing 0.1", "unknown flag --label-smoothing"},
      {"--method simclr --devices 3 --strategy ddp", "not a multiple of the 3 ranks"},
      {"--method moco --bn-splits 5 --devices 2 --strategy ddp", "--bn-splits 5: expected a divisor of 16"},
      {"--method nnclr --queue 100 --devices 2 --strategy ddp",
       "--queue 100: nnclr fills the queue with whole batches"},
  };
  for (const auto& [flags, message] : cases) {
    const Result r = pretrain(concat(flags, " --run ./bad"));
    EXPECT_EQ(r.code, 2) << flags << "\n" << r.text;
    EXPECT_MENTIONS(r.text, message);
    EXPECT_EQ(std::count(r.text.begin(), r.text.end(), '\n'), 1) << r.text;
    EXPECT_FALSE(fs::exists(path("bad"))) << flags;
  }
  ASSERT_EQ(pretrain("--method byol --run ./a").code, 0);
  EXPECT_MENTIONS(run("train --config a/config.toml --run ./bad").text, "ringtape pretrain");
  EXPECT_MENTIONS(run("pretrain --run ./a --resume --momentum-encoder 0.5").text, "was trained with");
  EXPECT_MENTIONS(run("pretrain --run ./a --resume --method byol --preset seed000").text, "was trained with");
}

// Batch normalisation needs two images, of one rank or of all.
TEST(PretrainingPlan, OneImageOnEachRankWithSyncBn) {
  TrainOptions o;
  o.trainer.batch_size = 2, o.parallel.sync_bn = true;
  for (const char* method : {"byol", "simsiam"}) {
    o.method.name = method;
    check_pretraining(o, 2);
  }
  o.trainer.batch_size = 1;
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { check_pretraining(o, 1); }), "each of 1 rank needs at least 2");
  o.trainer.batch_size = 2, o.parallel.sync_bn = false;
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { check_pretraining(o, 2); }),
                  "each of 2 ranks needs at least 2; with --sync-bn, 1");
  o.method.name = "simclr", o.parallel.sync_bn = true;
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { check_pretraining(o, 2); }), "each of 2 ranks needs at least 2");
}

// By --gpu-ids as by --devices: a batch is parted among as many devices.
TEST(PretrainingPlan, CountsTheDevicesThatAreNamed) {
  ParallelOptions p;
  p.strategy.name = "dp";
  p.gpu_ids = "2,3,5";
  EXPECT_EQ(p.own_devices(), 3);
  EXPECT_EQ(p.gpus(), (std::vector<int>{2, 3, 5}));
  p.devices = 3;
  EXPECT_EQ(p.own_devices(), 3);
  p.devices = 2;
  EXPECT_EQ(test::message_of<UsageError>([&] { (void)p.own_devices(); }), "--devices 2: --gpu-ids has 3");
  p.gpu_ids.clear();
  EXPECT_EQ(p.own_devices(), 2);
  EXPECT_TRUE(p.gpus().empty());
  p.strategy.name = "ddp";  // one in each process
  EXPECT_EQ(p.own_devices(), 1);
  for (const char* list : {",", "0,", "1,x", "-1", "64"}) {
    p.gpu_ids = list;
    EXPECT_MENTIONS(test::message_of<UsageError>([&] { (void)p.gpus(); }), "expected numbers of GPUs below 64");
  }

  TrainOptions o;
  o.method.name = "moco";
  test::set(o, {{"bn-splits", "10"}, {"queue", "60"}});
  o.trainer.batch_size = 30;
  o.parallel.strategy.name = "dp";
  check_pretraining(o, 1);
  o.parallel.gpu_ids = "0,1";
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { check_pretraining(o, 1); }),
                  "--bn-splits 10: expected a divisor of 15, the number of images per device");
  o.parallel.gpu_ids = "0,1,2,3";
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { check_pretraining(o, 1); }), "not a multiple of the 4 devices");
}

}  // namespace
}  // namespace ringtape
