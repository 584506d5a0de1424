// The ringtape binary, as users run it: what it writes, and its messages and files when something is wrong.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/cli_command.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

constexpr const char* kTiny = "train --train-size 300 --test-size 60 --epochs 2 --batch-size 32 --hidden 16 ";

TEST_F(CliTest, HelpAndVersion) {
  const CliResult overview = run("--help");
  EXPECT_EQ(overview.code, 0);
  for (const char* command :
       {"train", "pretrain", "evaluate", "embed", "export", "compare", "data info", "data verify", "data download",
        "launch", "store", "bench step", "bench collectives", "doctor", "list"}) {
    EXPECT_MENTIONS(overview.out, command);
    const CliResult help = run(std::string(command) + " --help");
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_MENTIONS(help.out, "Usage: ringtape " + std::string(command));
    EXPECT_EQ(help.err, "");
    size_t longest = 0, begin = 0;
    for (size_t end; (end = help.out.find('\n', begin)) != std::string::npos; begin = end + 1)
      longest = std::max(longest, end - begin);
    EXPECT_LE(longest, 100u) << command;
  }
  EXPECT_EQ(run("").code, 2);
  EXPECT_MENTIONS(run("--version").out, "ringtape 0.");
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

TEST_F(CliTest, WrongUsage) {
  expect_error("trian", 2, "unknown command 'trian'; did you mean train?");
  expect_error("--modle x", 2, "unknown flag");
  expect_error("bench", 2, "step");
  expect_error("bench stpe", 2, "did you mean step?");
  expect_error("train --epoch 3", 2, "unknown flag --epoch; did you mean --epochs?");
  expect_error("train --batchsize=3", 2, "did you mean --batch-size?");
  expect_error("train -lr 3", 2, "did you mean --lr?");
  expect_error("train --frobnicate", 2, "`ringtape train --help-all` lists all");
  expect_error("train stray", 2, "unexpected argument 'stray'");
  expect_error("train --epochs", 2, "--epochs: needs a value");
  expect_error("train --epochs --lr 1", 2, "--epochs: needs a value");
  expect_error("train --epochs three", 2, "--epochs: expected a whole number");
  expect_error("train --lr -1", 2, "--lr: expected a number of at least 0");
  expect_error("train --lr nan", 2, "--lr: expected a number");
  expect_error("train --batch-size 0", 2, "of at least 1");
  expect_error("train --epochs 0", 2, "--epochs: expected a whole number of at least 1");
  expect_error("train --accumulate 65", 2, "more parts than the 64 images");
  expect_error("train --data mnist --data-dir /caf\xe9", 2, "--data-dir: is not UTF-8");
  expect_error("train --resume --run x --overwrite", 2, "--resume and --overwrite");
  expect_error("train --batch_size 99999999999999999999", 2, "--batch-size");
  expect_error("train --dropout 1", 2, "below 1");
  expect_error("train --nesterov=maybe", 2, "--nesterov");
  expect_error("train --model mpl", 2, "did you mean mlp?");
  expect_error("train --data minst", 2, "did you mean mnist?");
  expect_error("train --optimizer adm", 2, "did you mean adam?");
  expect_error("train --schedule cos", 2, "did you mean cosine?");
  expect_error("train --device gpu", 2, "unknown device 'gpu'");
  expect_error("train --nesterov", 2, "--nesterov: not a setting of adam; ");
  expect_error("train --optimizer sgd --momentum 0 --nesterov", 2, "--nesterov: needs a --momentum above 0");
  expect_error("pretrain --method simclr --data shapes --train-size 300 --batch-size 301", 2,
               "larger than the 300 samples of shapes; give a smaller one");
  expect_error("train --val-size 20000", 2, "at least one must be left");
  expect_error("evaluate", 2, "RUN|CHECKPOINT|FILE");
  expect_error("evaluate x --protocol knm", 2, "unknown value 'knm'");
  expect_error("list modles", 2, "did you mean models?");
  expect_error("train --run /", 2, "--run /: the folder is not a run");
  expect_error("bench step --precision f8", 2, "available: auto f32 tf32 bf16 f16");
}

TEST_F(CliTest, MissingAndBrokenFiles) {
  expect_error("train --data mnist --data-dir /nowhere", 1, "no folder /nowhere");
  expect_error("train --data mnist", 1, "the data set shapes needs no files");
  expect_error("train --data mnist --data-dir " + write_idx_set(true), 1, "label 11 at position 0");
  expect_error("train --config /nowhere.toml", 1, "/nowhere.toml: cannot open");
  write_file((folder_ / "c.toml").string(), "epoch = 3\n");
  expect_error("train --config " + (folder_ / "c.toml").string(), 2, "did you mean epochs?");
  expect_error("evaluate nowhere", 1, "no run and no file 'nowhere'");
  expect_error("evaluate " + (folder_ / "c.toml").string(), 1, "not a safetensors file");
  expect_error("train --device cuda:63", 1, "cuda");
  expect_error("train --run /proc/nowhere/x --train-size 200 --test-size 10", 1, "cannot write");
}

#if defined(RINGTAPE_EMULATION_BUILD)
// A CUDA build on machines that do not fit it, and on one that does.
TEST_F(CliTest, MachinesWithoutAUsableGpu) {
  const std::string train = std::string(kTiny) + "--device cuda";
  expect_error(train, 1, "the CUDA driver is missing or older than CUDA", "RINGTAPE_EMULATED_GPU=");
  expect_error(train, 1, "the CUDA driver finds no GPU", "RINGTAPE_EMULATED_GPU=devices=0");
  expect_error(train, 1,
               "(sm_75), but this build has kernels for sm_90 only; reconfigure with -DCMAKE_CUDA_ARCHITECTURES=75",
               "RINGTAPE_EMULATED_GPU=sm=75");
  expect_error(train, 3, "out of memory on cuda:0: asked for", "RINGTAPE_EMULATED_GPU=memory=64K");
  expect_error(train + ":1", 1, "this machine has 1 of type cuda", "RINGTAPE_EMULATED_GPU=devices=1");
  expect_error(train, 2, "expected some of devices=N", "RINGTAPE_EMULATED_GPU=devices=many");
}

TEST_F(CliTest, TrainsOnAnEmulatedGpuAsOnTheCpu) {
  for (const std::string device : {"cuda", "cpu"}) {
    const CliResult r = run(std::string(kTiny) + "--threads 1 --optimizer sgd --lr 0.05 --run " + device +
                                " --device " + device + " --precision f32",
                            "RINGTAPE_EMULATED_GPU=devices=1");
    ASSERT_EQ(r.code, 0) << r.err;
  }
  const auto weights = [&](const std::string& run) {
    return read_safetensors((folder_ / "work/runs" / run / "exported/model.safetensors").string());
  };
  const Safetensors on_cuda = weights("cuda"), on_cpu = weights("cpu");
  ASSERT_EQ(on_cuda.tensors.size(), on_cpu.tensors.size());
  for (size_t i = 0; i < on_cpu.tensors.size(); ++i) {
    const std::span<const float> a = on_cuda.tensors[i].tensor.span<float>(),
                                 b = on_cpu.tensors[i].tensor.span<float>();
    for (size_t j = 0; j < b.size(); ++j) ASSERT_NEAR(a[j], b[j], 1e-5) << on_cpu.tensors[i].name << " element " << j;
  }
  const Json env = parse_json(read_file((folder_ / "work/runs/cuda/env.json").string()));
  EXPECT_MENTIONS(env["gpus"][0].get<std::string>(), "sm_90");
}
#endif

TEST_F(CliTest, AShortTrainingLeavesACompleteRun) {
  const CliResult r = run(std::string(kTiny) + "--run one --schedule cosine --warmup-epochs 0.5");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_MENTIONS(r.out, "epoch 2/2");
  const fs::path dir = folder_ / "work/runs/one";
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    files.insert(name.starts_with("events.out.tfevents.") ? "events" : name);
  }
  EXPECT_EQ(files, (std::set<std::string>{".lock", ".saved", "checkpoints", "config.toml", "data.json", "env.json",
                                          "events", "exported", "metrics.csv", "metrics.jsonl", "report.html",
                                          "snapshots", "train.log"}));

  std::vector<Json> lines;
  std::ifstream metrics(dir / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) lines.push_back(parse_json(line));
  ASSERT_EQ(lines.size(), 6u);
  const std::array splits = {"train", "val", "train", "val", "test", "summary"};
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["split"], splits[i]);
  EXPECT_EQ(lines[0]["step"], 9);  // 270 images in batches of 32
  EXPECT_EQ(lines[5]["step"], 18);
  EXPECT_EQ(lines[5]["top1"], lines[4]["top1"]);
  EXPECT_EQ(lines[5]["parameters"], 3072 * 16 + 16 + 160 + 10);
  for (const char* key : {"loss", "top1", "top5", "lr", "images_per_s", "seconds", "data_s", "forward_s", "backward_s",
                          "optimizer_s", "peak_bytes"})
    EXPECT_TRUE(lines[0].contains(key)) << key;

  const Json env = parse_json(read_file((dir / "env.json").string()));
  for (const char* key :
       {"ringtape", "revision", "time", "command_line", "host", "cpu", "isa", "threads", "compiler", "libraries"})
    EXPECT_TRUE(env.contains(key)) << key;
  EXPECT_EQ(env["command_line"][1], "train");
  EXPECT_MENTIONS(read_file((dir / "train.log").string()), "top-1");

  const Safetensors weights = read_safetensors((dir / "exported/model.safetensors").string());
  EXPECT_EQ(weights["1.weight"].shape(), (Shape{16, 3072}));
  EXPECT_EQ(weights["3.bias"].shape(), (Shape{10}));
  EXPECT_EQ(weights.metadata.at("format"), "pt");

  const std::string readme = read_file((dir / "exported/README.md").string());
  EXPECT_MENTIONS(readme, "nn.Linear(3072, 16), nn.ReLU(), nn.Linear(16, 10))");
  EXPECT_MENTIONS(readme, "strict=True");

  for (const std::string target :
       {"one", "runs/one", "runs/one/exported/model.safetensors", "runs/one/checkpoints/last"}) {
    const CliResult test = run("evaluate " + target + " --json");
    ASSERT_EQ(test.code, 0) << test.err;
    EXPECT_EQ(parse_json(test.out)["top1"], lines[5]["top1"]);
    EXPECT_EQ(parse_json(test.out)["images"], 60);
  }
  const CliResult again = run(std::string(kTiny) + "--run one");
  EXPECT_EQ(again.code, 2);
  EXPECT_MENTIONS(again.err, "--overwrite");
  EXPECT_EQ(run(std::string(kTiny) + "--run one --overwrite").code, 0);
  EXPECT_EQ(run("evaluate one --hidden 8").code, 1);  // other shapes than the file's
}

TEST_F(CliTest, TheSameRunTwiceGivesTheSameBytes) {
  const std::array variants = {"--run a",
                               "--run b",
                               "--run c --threads 1 --deterministic",
                               "--run d --threads 2 --deterministic",
                               "--run e --workers 0",
                               "--run f --workers 3"};
  std::string first;
  for (const char* variant : variants) {
    const CliResult r = run(std::string(kTiny) + "--dropout 0.2 --optimizer adamw --weight-decay 0.01 " + variant);
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string name(1, variant[6]);
    const std::string bytes = read_file((folder_ / "work/runs" / name / "exported/model.safetensors").string());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << variant;
  }
  ASSERT_EQ(run(std::string(kTiny) + "--run g --seed 2").code, 0);
  EXPECT_FALSE(read_file((folder_ / "work/runs/g/exported/model.safetensors").string()) == first);
}

TEST_F(CliTest, PrecedenceOfFlagsConfigurationAndEnvironment) {
  const std::string config = (folder_ / "c.toml").string();
  write_file(config, "epochs = 1\nhidden = 8\ntrain_size = 100\ntest-size = 20\nlr = 0.5\n");
  const CliResult r =
      run("train --config " + config + " --lr 0.25 --hidden=4 --batch_size 10 --run p", "RINGTAPE_THREADS=1");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string written = read_file((folder_ / "work/runs/p/config.toml").string());
  for (const char* line :
       {"epochs = 1\n", "hidden = 4\n", "lr = 0.25\n", "batch-size = 10\n", "threads = 1\n", "val-size = 10\n"})
    EXPECT_MENTIONS(written, line);
  ASSERT_EQ(run("train --config runs/p/config.toml --run q").code, 0);
  EXPECT_EQ(read_file((folder_ / "work/runs/q/config.toml").string()), written);
}

// What ranks are told does not concern a process that has no others.
TEST_F(CliTest, AProcessAloneAsksForNoAlgorithmOfCollectives) {
  EXPECT_EQ(run(kTiny, "RINGTAPE_ALLREDUCE=nonsense").code, 0);
  const CliResult pair = run(std::string(kTiny) + " --devices 2", "RINGTAPE_ALLREDUCE=nonsense");
  EXPECT_EQ(pair.code, 2) << pair.err;
  EXPECT_MENTIONS(pair.err,
                  "RINGTAPE_ALLREDUCE=nonsense: unknown algorithm of all_reduce 'nonsense'; available: direct");
}

TEST_F(CliTest, JsonOutputIsTheMetricsFile) {
  const CliResult r = run(std::string(kTiny) + "--json --run j --limit-train-batches 2 --limit-eval-batches 1");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, read_file((folder_ / "work/runs/j/metrics.jsonl").string()));
}

TEST_F(CliTest, ALongTrainingTellsOnceHowLongItTakes) {
  const CliResult r = run(std::string(kTiny) + "--epochs 1000000 --checkpoint-every 0 --run l", "timeout -s TERM 4");
  ASSERT_EQ(r.code, 124) << r.err;
  EXPECT_MENTIONS(r.out, "epoch 2/1000000");
  const size_t told = r.out.find("  about ");
  ASSERT_NE(told, std::string::npos) << r.out;
  EXPECT_MENTIONS(r.out.substr(told, r.out.find('\n', told) - told), " left");
  EXPECT_TRUE(r.out.substr(0, r.out.find('\n', told)).find("epoch 2/") == std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("  about ", told + 1), std::string::npos) << r.out;
  EXPECT_LACKS(run(std::string(kTiny) + "--run s").out, " left");
}

TEST_F(CliTest, LinesOfSingleSteps) {
  const CliResult r = run(std::string(kTiny) + "--run s --log-every 4 --precision f16 --clip-grad-norm 1 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  std::vector<Json> steps;
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);)
    if (const Json m = parse_json(line); m["split"] == "train_step") steps.push_back(m);
  ASSERT_EQ(steps.size(), 4u);  // 18 steps
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(steps[i]["step"], 4 * (i + 1));
    EXPECT_EQ(steps[i]["epoch"], i < 2 ? 1 : 2);
    for (const char* key : {"loss", "lr", "images_per_s", "grad_norm", "loss_scale"})
      EXPECT_GT(steps[i][key].get<double>(), 0) << key;
  }
  EXPECT_MENTIONS(run(std::string(kTiny) + "--run t --log-every 4 --clip-grad-norm 1").out, "step 4       loss 2.");
}

TEST_F(CliTest, EvaluateTestsAllImagesUnlessToldOtherwise) {
  const std::string tiny = "train --train-size 100 --test-size 600 --epochs 1 --hidden 4 ";
  const CliResult r = run(tiny + "--run l --limit-eval-batches 1");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(parse_json(run("evaluate l --json").out)["images"], 600);
  EXPECT_MENTIONS(run("evaluate l").out, "on the 600 test images");
  EXPECT_EQ(parse_json(run("evaluate l --json --limit-eval-batches 1").out)["images"], 500);
  EXPECT_MENTIONS(run("evaluate l --limit-eval-batches 1").out, "on 500 of the 600 test images");
}

TEST_F(CliTest, ARunPathNeedNotBeUtf8) {
  const CliResult r = run(std::string(kTiny) + "--json --run ./caf\xe9");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "\"run\":\"./caf\xef\xbf\xbd\"");
  const CliResult test = run("evaluate ./caf\xe9 --json");
  ASSERT_EQ(test.code, 0) << test.err;
  EXPECT_EQ(parse_json(test.out)["images"], 60);
}

TEST_F(CliTest, ReadsIdxFilesFromTheEnvironmentsFolder) {
  const std::string data = write_idx_set(false);
  const CliResult r = run("train --data mnist --epochs 1 --batch-size 4 --run i --json", "RINGTAPE_DATA_DIR=" + data);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(read_file((folder_ / "work/runs/i/config.toml").string()), "data-dir = \"" + data);
}

TEST_F(CliTest, ALossThatIsNoNumberStopsTheTraining) {
  const CliResult r = run(std::string(kTiny) + "--optimizer sgd --lr 1e30 --run n");
  EXPECT_EQ(r.code, 1);
  EXPECT_MENTIONS(r.err, "lower --lr");
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  const std::string metrics = read_file((folder_ / "work/runs/n/metrics.jsonl").string());
  EXPECT_EQ(metrics.find("summary"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "work/runs/n/exported/model.safetensors"));
  EXPECT_MENTIONS(run("evaluate n").err, "has not finished");
}

TEST_F(CliTest, DataInfoVerifyAndDownload) {
  const std::string data = write_idx_set(false), dir = " --data-dir " + data;
  const CliResult info = run("data info mnist --json" + dir);
  ASSERT_EQ(info.code, 0) << info.err;
  const Json seen = parse_json(info.out);
  EXPECT_EQ(seen["train"]["images"], 20);
  EXPECT_EQ(seen["test"]["shape"], Json({2, 2, 1}));
  EXPECT_NEAR(seen["train"]["mean"][0].get<double>(), 100 / 255.0, 1e-6);
  EXPECT_EQ(seen["classes"].size(), 10u);
  EXPECT_MENTIONS(run("data info mnist" + dir).out,
                  "20 images of 2x2x1, 0 to 20 per class, mean 0.3922, deviation 0.0000");
  EXPECT_MENTIONS(run("data info shapes --train-size 50 --test-size 10").out, "50 images of 32x32x3, 5 to 5 per class");

  const CliResult good = run("data verify mnist" + dir);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_MENTIONS(good.out, "ok      20 training images in " + data);
  write_file(data + "/train-images-idx3-ubyte.gz", "other");
  const CliResult other = run("data verify mnist" + dir);
  EXPECT_EQ(other.code, 1);
  EXPECT_MENTIONS(other.out, "FAILED  " + data +
                                 "/train-images-idx3-ubyte.gz: sha256 "
                                 "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa; expected 440f");
  expect_error("data verify mnist --data-dir " + write_idx_set(true), 1, "label 11 at position 0");

  const std::string there = " --data-dir " + (folder_ / "new").string() + " --from file://";
  expect_error("data download mnist" + there + "/nowhere", 1,
               "cannot fetch file:///nowhere/train-images-idx3-ubyte.gz (curl: (37)");
  expect_error("data download mnist" + there + data, 1,
               "expected sha256 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609, got "
               "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa");
  EXPECT_TRUE(fs::is_empty(folder_ / "new/mnist"));
  expect_error("data download shapes", 2, "it is generated");
  expect_error("data download imagefolder", 2, "nothing to download");
  expect_error("data info", 2, "name a data set");
  expect_error("data info minst", 2, "did you mean mnist?");
  expect_error("data", 2, "info, verify or download");
  EXPECT_MENTIONS(run("data --help").out, "data verify");
}

TEST_F(CliTest, AugmentationIsRecordedAndRepeatable) {
  const std::string flags = "--crop-padding 4 --flip --rotation 10 --cutout 8 ";
  std::string first;
  for (const char* variant : {"--run a", "--run b --workers 0 --threads 1", "--run c --workers 3"}) {
    const CliResult r = run(std::string(kTiny) + flags + variant);
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string bytes =
        read_file((folder_ / "work/runs" / std::string(1, variant[6]) / "exported/model.safetensors").string());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << variant;
  }
  const std::string config = read_file((folder_ / "work/runs/a/config.toml").string());
  for (const char* line : {"crop-padding = 4\n", "flip = true\n", "rotation = 10\n", "cutout = 8\n"})
    EXPECT_MENTIONS(config, line);
  ASSERT_EQ(run(std::string(kTiny) + "--run d").code, 0);
  EXPECT_FALSE(read_file((folder_ / "work/runs/d/exported/model.safetensors").string()) == first);
  fs::remove_all(folder_ / "work/runs");
  expect_error("train --rotation 181", 2, "at most 180");
  expect_error("train --crop-padding -1", 2, "at least 0");
}

TEST_F(CliTest, DoctorListAndBench) {
  const CliResult doctor = run("doctor --json");
  EXPECT_EQ(doctor.code, 0) << doctor.err << doctor.out;
  EXPECT_TRUE(parse_json(doctor.out)["checks"]["autograd"]["passed"].get<bool>());
  const CliResult broken = run("doctor", "RINGTAPE_DATA_DIR=" + write_idx_set(true));
  EXPECT_EQ(broken.code, 1);
  EXPECT_MENTIONS(broken.out, "label 11");
  const CliResult list = run("list --json");
  EXPECT_EQ(parse_json(list.out)["models"][0], "mlp");
  EXPECT_MENTIONS(run("list data").out, "shapes");
  const CliResult bench = run("bench step --json --threads 1 --hidden 16");
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_GT(parse_json(bench.out)["steps_per_s"].get<double>(), 0);
  EXPECT_TRUE(parse_json(bench.out)["phases"].contains("backward_s"));
  const CliResult method =
      run("bench step --method byol --model resnet18 --width 1 --batch-size 4 --projection-hidden 8 --projection-dim 4 "
          "--prediction-hidden 8 "
          "--threads 1 --workers 0 --json");
  ASSERT_EQ(method.code, 0) << method.err;
  EXPECT_EQ(parse_json(method.out)["method"], "byol");
  EXPECT_GT(parse_json(method.out)["phases"]["data_s"].get<double>(), 0);
  EXPECT_GT(parse_json(method.out)["cpu_s"].get<double>(), 0);
  expect_error("bench step --temperature 0.2", 2, "--method");
  expect_error("bench step --method simclr --batch-size 1", 2, "--batch-size 1");
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

}  // namespace
}  // namespace ringtape
