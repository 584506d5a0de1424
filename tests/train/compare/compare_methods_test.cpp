// The table of self-supervised methods: its rows from finished runs, and the command that runs them.
#include <cmath>

#include "core/registry.h"
#include "nn/ssl/method.h"
#include "tests/support/compare_command.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"
#include "train/compare/plot.h"
#include "train/io/json.h"
#include "train/settings/given.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

FinishedRun run_of(int64_t seed, double top1, double seconds) {
  FinishedRun r;
  r.path = concat("out/", seed), r.seed = seed, r.epochs = 2, r.steps = 10;
  r.top1 = top1, r.best_top1 = top1 + 0.01, r.seconds = seconds, r.epoch_s = seconds / 4, r.images_per_s = 1000,
  r.peak_bytes = 25e6;
  r.protocol = "kNN, k 20", r.batch = 256;
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    Metrics train, knn;
    train.split = "train", knn.split = "knn";
    train.epoch = knn.epoch = epoch, train.loss = 5.0 / double(epoch), knn.top1 = top1;
    r.metrics.insert(r.metrics.end(), {train, knn});
  }
  return r;
}

std::vector<ComparedMethod> some_methods() {
  return {{"moco", {"single", 1, {run_of(0, 0.77, 120)}}},
          {"simclr", {"single", 1, {run_of(0, 0.5, 60), run_of(1, 0.6, 72)}}},
          {"moco", {"ddp", 4, {run_of(0, 0.76, 40)}}, true},
          {"simclr", {"ddp", 4, {run_of(0, 0.55, 30), run_of(1, 0.55, 30)}}, false, true},
          {"swav", {"ddp", 4, {run_of(0, 0.7, 30)}}, true, false}};
}

TEST(CompareMethods, TableHasARowAMethodAndSetting) {
  const std::vector<ComparedMethod> all = some_methods();
  const std::string table = methods_table(all).markdown();
  for (const char* row :
       {"| moco | single | 1 | - | - | 256 | 77.00 | 78.00 | 2.00 | 30.00 | 1.00 | 1000 | 25.0 |\n",
        "| simclr | single | 1 | - | - | 256 | 55.00 ± 7.07 | 56.00 ± 7.07 | 1.10 ± 0.14 | 16.50 ± 2.12 | 1.00 | 1000 "
        "± 0 | "
        "25.0 ± 0.0 |\n",
        "| moco | ddp | 4 | yes | - | 256 | 76.00 | 77.00 | 0.67 | 10.00 | 3.00 |",
        "| simclr | ddp | 4 | no | yes | 256 | 55.00 ± 0.00 | 56.00 ± 0.00 | 0.50 ± 0.00 | 7.50 ± 0.00 | 2.20 |",
        "| swav | ddp | 4 | yes | no | 256 | 70.00 | 71.00 | 0.50 | 7.50 | - |"})
    EXPECT_MENTIONS(table, row);
  const auto rows = methods_json(all);
  EXPECT_EQ(rows[2]["sync_bn"], true);
  EXPECT_TRUE(rows[2]["gather"].is_null());
  EXPECT_EQ(rows[4]["gather"], false);
  EXPECT_EQ(rows[3]["seeds"], (Json{0, 1}));
  EXPECT_DOUBLE_EQ(rows[3]["speed_up"]["mean"].get<double>(), 2.2);
  EXPECT_FALSE(rows[4].contains("speed_up"));  // there is no `single` run for comparison
  EXPECT_EQ(all[3].name(), "simclr-ddp-4-gather");
  EXPECT_EQ(all[2].setting(), "ddp on 4 devices, SyncBN");
}

TEST(CompareMethods, EachCombinationIsComparedWithItsOwnSingle) {
  std::vector<ComparedMethod> all;
  for (const auto& [lr, seconds] : {std::pair("0.1", 60.0), {"0.2", 30.0}})
    for (const int64_t devices : {1, 2})
      all.push_back(
          {"simclr",
           {devices == 1 ? "single" : "ddp", devices, {run_of(0, 0.5, seconds / double(devices))}, {{"lr", lr}}}});
  for (const Json& row : methods_json(all))
    EXPECT_DOUBLE_EQ(row["speed_up"]["mean"].get<double>(), row["devices"].get<double>()) << row.text();
  EXPECT_MENTIONS(methods_table(all).markdown(), "\n| 0.2 | simclr | ddp | 2 | no | - | 256 | 50.00 |");
}

TEST(CompareMethods, ProtocolsThatDifferAreAllNamed) {
  std::vector<ComparedMethod> all = some_methods();
  EXPECT_EQ(protocol_of(all), "kNN, k 20");
  all[1].under.runs[1].protocol = "kNN, k 200";
  EXPECT_EQ(protocol_of(all), "kNN, k 20; of other rows: kNN, k 200");
}

TEST(CompareMethods, PlotIsWellFormed) {
  std::vector<ComparedMethod> all = some_methods();
  EXPECT_LACKS(methods_plot(all, ""), "<circle");
  all[0].under.runs[0].metrics[2].loss = std::nan("");
  const std::string svg = methods_plot(all, "a & b");
  test::expect_xml(svg);
  EXPECT_LACKS(svg, "nan");
  for (const char* word :
       {"moco: top-1 accuracy of kNN, %", "swav: loss", "single on 1 device<", "ddp on 4 devices, SyncBN<",
        "ddp on 4 devices, gather<", "class=\"s2\"", "class=\"a0\"", "<circle class=\"m0\""})
    EXPECT_MENTIONS(svg, word);
  for (ComparedMethod& m : all)
    for (FinishedRun& r : m.under.runs) r.metrics.resize(1);  // and no kNN
  const std::string one_epoch = methods_plot(all, "");
  test::expect_xml(one_epoch);
  EXPECT_MENTIONS(one_epoch, "<circle class=\"m0\"");
  EXPECT_LACKS(one_epoch, "inf");
}

TEST(CompareMethods, AllBeginWithThoseOfTheTable) {
  const auto table = nn::methods().first(6);
  EXPECT_EQ(names_of(table), (std::vector<std::string>{"moco", "simclr", "simsiam", "barlow_twins", "byol", "swav"}));
  std::vector<std::string> gathering;
  for (const nn::MethodEntry& method : table)
    if (method.gathers()) gathering.emplace_back(method.name);
  EXPECT_EQ(gathering, (std::vector<std::string>{"simclr", "barlow_twins", "swav"}));
  EXPECT_TRUE(has_recipe("corrected", "vicreg"));
  EXPECT_FALSE(has_recipe("seed000", "vicreg"));
}

constexpr const char* kTiny =
    "--data shapes --train-size 128 --test-size 64 --model mlp --hidden 16 --batch-size 32 --knn-k 20 "
    "--warmup-epochs 0 --threads 1 --out r";

class CompareMethodsCommand : public test::CompareCommand {
 protected:
  CompareMethodsCommand() : test::CompareCommand(RINGTAPE_BINARY, kTiny) {}
};

TEST_F(CompareMethodsCommand, ASweepOverASettingOfAMethod) {
  const std::string flags = "--strategies single --projection-hidden 32 --projection-dim 16 --epochs 1 --devices 1 ";
  expect_error(flags + "--methods simclr,byol --vary temperature=0.1,0.5", 2,
               "--vary temperature: byol does not have this setting; leave the method out");
  expect_error(flags + "--methods simclr --vary temperature=0.1,0", 2,
               "--vary: temperature 0: --temperature: expected");
  EXPECT_FALSE(fs::exists(folder_ / "r"));
  ASSERT_EQ(run(flags + "--methods simclr --vary temperature=0.1,0.5"), 0) << err;
  const Json rows = parse_json(file("compare.json"))["methods"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["settings"], (Json{{"temperature", "0.5"}}));
  EXPECT_EQ(rows[1]["speed_up"]["mean"], 1);
  EXPECT_MENTIONS(file("temperature-0.5-simclr-single-1-seed-0/config.toml"), "\ntemperature = 0.5\n");
  EXPECT_MENTIONS(out, "| 0.5 | simclr | single | 1 | - | - | 32 |");
}

TEST_F(CompareMethodsCommand, PretrainsEachOnceAndWritesTheTable) {
  const std::string flags =
      "--methods simclr,byol --devices 2 --sync-bn on --projection-hidden 32 --projection-dim 16 --epochs 1 ";
  ASSERT_EQ(run(flags), 0) << err;
  const Json all = parse_json(file("compare.json")), &rows = all["methods"];
  ASSERT_EQ(rows.size(), 4u);
  const auto row = [&](int i) { return Json{rows[i]["method"], rows[i]["strategy"], rows[i]["gather"]}; };
  EXPECT_EQ(row(0), (Json{"simclr", "single", nullptr}));
  EXPECT_EQ(row(1), (Json{"byol", "single", nullptr}));
  EXPECT_EQ(row(2), (Json{"simclr", "ddp", true}));
  EXPECT_EQ(row(3), (Json{"byol", "ddp", nullptr}));
  EXPECT_EQ(rows[2]["runs"], (Json{"r/simclr-ddp-2-sync-bn-gather-seed-0"}));
  for (const Json& r : rows) EXPECT_GE(r["best_top1"]["mean"], r["top1"]["mean"]);
  EXPECT_MENTIONS(all["protocol"].get<std::string>(), "kNN, k 20");
  EXPECT_MENTIONS(file("compare.md"), "Accuracy: kNN, k 20");
  EXPECT_MENTIONS(file("compare.md"), "| byol | ddp | 2 | yes | - | ");
  EXPECT_MENTIONS(out, "| simclr | ddp | 2 | yes | yes | ");
  test::expect_xml(file("compare.svg"));

  // With the outputs and statistics of all ranks, the loss equals that of one device.
  const auto loss = [&](const std::string& name) {
    const std::string lines = file(name + "/metrics.jsonl");
    return parse_json(lines.substr(lines.rfind('\n', lines.size() - 2) + 1))["train_loss"].get<double>();
  };
  EXPECT_NEAR(loss("simclr-ddp-2-sync-bn-gather-seed-0"), loss("simclr-single-1-seed-0"), 1e-3);
  EXPECT_NEAR(loss("byol-ddp-2-sync-bn-seed-0"), loss("byol-single-1-seed-0"), 1e-3);

  // Finished runs are used as they are; unfinished ones are run.
  const std::string log = file("simclr-single-1-seed-0/train.log");
  fs::remove_all(folder_ / "r/byol-single-1-seed-0");
  ASSERT_EQ(run(flags), 0) << err;
  EXPECT_MENTIONS(
      out, "[2/4] simclr-ddp-2-sync-bn-gather-seed-0: already finished\n[3/4] byol-single-1-seed-0\n  epoch 1/1");
  EXPECT_EQ(file("simclr-single-1-seed-0/train.log"), log);
  EXPECT_EQ(parse_json(file("compare.json"))["methods"][1]["top1"], rows[1]["top1"]);
  expect_error(
      flags + "--lr 0.1", 2,
      "--lr 0.1: r/simclr-single-1-seed-0 was trained with 0.015 so far; use the same value, or choose another "
      "--out, or --overwrite");
  expect_error(flags + "--preset seed000", 2,
               "--projection-norm none: r/simclr-single-1-seed-0 was trained with all so far");
  expect_error("--methods simclr --strategies single", 2,
               "--projection-hidden 512: r/simclr-single-1-seed-0 was trained with 32 so far");
}

// Flags of the preset's optimizer and schedule are accepted. A file's `gather-distributed` does not apply to a single
// device.
TEST_F(CompareMethodsCommand, TakesSettingsOfWhatThePresetChooses) {
  write_file((folder_ / "c.toml").string(), "gather-distributed = true\ntemperature = 0.3\n");
  ASSERT_EQ(run("--methods simclr --strategies single --epochs 1 --momentum 0.8 --final-lr 0.001 --projection-hidden 8 "
                "--projection-dim 4 --preset corrected --config c.toml"),
            0)
      << err;
  const std::string config = file("simclr-single-1-seed-0/config.toml");
  for (const char* line :
       {"momentum = 0.8\n", "final-lr = 0.001\n", "temperature = 0.3\n", "gather-distributed = false\n"})
    EXPECT_MENTIONS(config, line);
}

TEST_F(CompareMethodsCommand, GoesOnAfterAMethodThatRefusesItsFlags) {
  const std::string flags = "--strategies single --epochs 1 --projection-hidden 32 --projection-dim 16 --methods ";
  expect_error(flags + "simclr,mae", 1, "mae-single-1-seed-0: --method mae: hides tokens of a vision transformer");
  EXPECT_EQ(parse_json(file("compare.json"))["methods"].size(), 1u);
  EXPECT_MENTIONS(file("report.html"), "simclr");
  expect_error(flags + "mae,simclr --out other", 2, "--method mae: hides tokens of a vision transformer");
}

TEST_F(CompareMethodsCommand, SwitchesAreThoseThatAreAskedFor) {
  ASSERT_EQ(run("--methods simclr,simsiam --strategies ddp --devices 2 --sync-bn off --gather both --epochs 1 --json "
                "--projection-hidden 32 --projection-dim 16 --prediction-hidden 16"),
            0)
      << err;
  const Json rows = parse_json(out)["methods"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["gather"], true);
  EXPECT_EQ(rows[1]["method"], "simsiam");
  EXPECT_EQ(rows[2]["gather"], false);
  EXPECT_FALSE(rows[2].contains("speed_up"));
  for (const Json& r : rows) EXPECT_EQ(r["sync_bn"], false);
}

TEST_F(CompareMethodsCommand, SaysWhatIsWrong) {
  expect_error("--methods simclr,byul --devices 2", 2, "--methods: unknown method 'byul'; did you mean byol?");
  expect_error("--methods simclr,simclr --devices 2", 2, "expected different values");
  expect_error("--methods all", 2, "--devices 1: --strategies other than single need 2 or more");
  expect_error("--methods all --strategies single --gather on", 2, "--gather: needs ddp");
  expect_error("--methods all --strategies single --sync-bn", 2, "--sync-bn: needs ddp or dp");
  expect_error("--methods moco,byol --devices 2 --gather both", 2, "--gather: none of these methods supports it");
  expect_error("--methods byol --devices 2 --sync-bn maybe", 2, "--sync-bn: expected on, off or both, got 'maybe'");
  expect_error("--methods byol --devices 2 --preset seed", 2, "--preset: unknown preset 'seed'; did you mean seed000?");
  expect_error("--methods byol,vicreg --devices 2 --preset seed000", 2, "--preset seed000: has no recipe for vicreg");
  expect_error("--methods byol --label-smoothing 0.1", 2, "--label-smoothing: only for trainings with labels");
  expect_error("--methods byol --inference", 2, "--methods, --inference and --memory: give only one");
  expect_error("--knn-k 3 --devices 2", 2, "--knn-k: only for self-supervised methods; choose them with --methods");
  EXPECT_FALSE(fs::exists(folder_ / "r"));
  expect_error("--methods byol --strategies single --batch-size 999", 2, "byol-single-1-seed-0: --batch-size 999");
}

}  // namespace
}  // namespace ringtape
