// The table of strategies: its rows from finished runs, and the command that runs them.
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "tests/support/compare_command.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"
#include "train/compare/plot.h"
#include "train/compare/table.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class CompareCommand : public test::CompareCommand {
 protected:
  CompareCommand()
      : test::CompareCommand(RINGTAPE_BINARY,
                             "--train-size 300 --test-size 60 --batch-size 32 --hidden 16 --devices 2 --out r") {}
};

class SweepCommand : public test::CompareCommand {
 protected:
  SweepCommand()
      : test::CompareCommand(RINGTAPE_BINARY, "--train-size 300 --test-size 60 --batch-size 32 --epochs 1 --out r") {}
};

FinishedRun run_of(int64_t seed, double top1, double images_per_s) {
  FinishedRun r;
  r.path = concat("out/", seed), r.seed = seed, r.epochs = 2, r.steps = 10;
  r.loss = 1.5, r.top1 = top1, r.top5 = 0.9, r.epoch_s = 3, r.images_per_s = images_per_s, r.peak_bytes = 25e6;
  r.state_bytes = 7e6, r.batch = 64;
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    Metrics& m = r.metrics.emplace_back();
    m.split = "val", m.epoch = epoch, m.loss = 2.0 / double(epoch), m.top1 = top1;
  }
  return r;
}

TEST(Compare, MeanAndStandardDeviationOfASample) {
  EXPECT_EQ(spread_of({4}).mean, 4);
  EXPECT_FALSE(spread_of({4}).deviation);
  EXPECT_DOUBLE_EQ(spread_of({2, 4, 9}).mean, 5);
  EXPECT_DOUBLE_EQ(*spread_of({2, 4, 9}).deviation, std::sqrt(13.0));
}

TEST(Compare, TableHasARowAStrategy) {
  std::vector<ComparedStrategy> all = {{"single", 1, {run_of(2, 0.5, 100), run_of(4, 0.6, 100)}},
                                       {"ddp", 2, {run_of(2, 0.5, 160), run_of(4, 0.6, 200)}}};
  for (FinishedRun& r : all[1].runs) r.step_bytes = 44.7e6, r.hidden = 0.935;
  const std::string table = comparison_table(all).markdown();
  const std::string first =
      "| single | 1 | 64 | 1.5000 ± 0.0000 | 55.00 ± 7.07 | 90.00 ± 0.00 "
      "| 3.00 ± 0.00 | 100 ± 0 | 1.00 | 25.0 ± 0.0 | 7.0 ± 0.0 | - | - |\n";
  EXPECT_NE(table.find(first), std::string::npos) << table;
  const std::string second = "| 180 ± 28 | 1.80 | 25.0 ± 0.0 | 7.0 ± 0.0 | 44.70 ± 0.00 | 94 ± 0 |\n";
  EXPECT_NE(table.find(second), std::string::npos) << table;
  const auto rows = comparison_json(all);
  EXPECT_DOUBLE_EQ(rows[1]["speed_up"]["mean"].get<double>(), 1.8);
  EXPECT_FALSE(rows[0].contains("hidden"));
  EXPECT_EQ(rows[1]["seeds"], (Json{2, 4}));
  all[1].runs[0].hidden = {};
  // An average would be over other runs than the rest of the row.
  EXPECT_FALSE(comparison_json(all)[1].contains("hidden"));
}

// A row of a sweep, with the accuracy of the validation and that of the test.
ComparedStrategy combination(const std::string& lr, double validation, double test) {
  ComparedStrategy out{"single", 1, {run_of(2, test, 100)}, {{"lr", lr}, {"hidden", "8"}}};
  out.runs[0].val_top1 = validation;
  return out;
}

TEST(Compare, TableOfASweepHasItsSettingsAndTheBestByValidation) {
  std::vector<ComparedStrategy> all = {combination("0.1", 0.5, 0.9), combination("0.01", 0.75, 0.6)};
  const Table table = comparison_table(all);
  EXPECT_TRUE(
      table.markdown().starts_with("| lr | hidden | strategy | devices | images per step | validation top-1, % |"))
      << table.markdown();
  EXPECT_MENTIONS(table.markdown(), "\n| 0.01 | 8 | single | 1 | 64 | 75.00 | 1.5000 | 60.00 |");
  EXPECT_EQ(best_text({&all[0], &all[1]}), "Best validation top-1: lr 0.01, hidden 8. ");
  EXPECT_EQ(best_text({&all[0], &all[0]}), "");
  const Table flat = flat_table(comparison_json(all));
  EXPECT_TRUE(flat.csv().starts_with("strategy,devices,lr,hidden,seeds,runs,batch,val_top1,")) << flat.csv();
  EXPECT_MENTIONS(flat.csv(), "\nsingle,1,0.01,8,2,out/2,64,0.75,1.5,0.6,0.9,");
  for (ComparedStrategy& s : all) s.runs[0].val_top1 = {};
  EXPECT_EQ(best_text({&all[0], &all[1]}), "Best top-1: lr 0.1, hidden 8. ");
  EXPECT_LACKS(comparison_table(all).markdown(), "validation");
  for (ComparedStrategy& s : all) s.settings.clear();
  EXPECT_EQ(best_text({&all[0], &all[1]}), "");
}

TEST(Compare, PlotOfALargeSweepHasTheBest) {
  std::vector<ComparedStrategy> all;
  for (int i = 0; i < 9; ++i) all.push_back(combination(concat("0.", i), 0.1 * i, 0.5));
  const std::string svg = comparison_plot(all, "mlp");
  test::expect_xml(svg);
  EXPECT_MENTIONS(svg, "mlp: the 5 best of 9");
  EXPECT_MENTIONS(svg, ">lr 0.8, hidden 8, single on 1 device<");
  EXPECT_LACKS(svg, ">lr 0.3, hidden 8");
}

TEST(Compare, PlotIsWellFormed) {
  std::vector<ComparedStrategy> all = {{"single", 1, {run_of(2, 0.5, 100), run_of(4, 0.6, 100)}},
                                       {"ddp", 2, {run_of(2, 0.55, 160)}}};
  all[1].runs[0].metrics[1].loss = std::nan("");
  const std::string svg = comparison_plot(all, "a & b");
  test::expect_xml(svg);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  for (const char* word : {"single on 1 device<", "ddp on 2 devices<", "mean of 2 seeds", "loss of the validation",
                           "class=\"s1\"", "class=\"a0\""})
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  for (ComparedStrategy& s : all)
    for (FinishedRun& r : s.runs) r.metrics.resize(1), r.metrics[0].split = "train";
  const std::string one_epoch = comparison_plot(all, "");
  test::expect_xml(one_epoch);
  EXPECT_NE(one_epoch.find("loss of the training"), std::string::npos);
}

TEST_F(CompareCommand, TrainsEachOnceAndWritesTheTable) {
  const std::string flags = "--strategies single,ddp --seeds 2,4 --epochs 1 ";
  ASSERT_EQ(run(flags), 0) << err;
  const Json all = parse_json(file("compare.json"));
  ASSERT_EQ(all["strategies"].size(), 2u);
  const Json &single = all["strategies"][0], &ddp = all["strategies"][1];
  EXPECT_EQ(single["runs"], (Json{"r/single-1-seed-2", "r/single-1-seed-4"}));
  EXPECT_NEAR(ddp["test_loss"]["mean"].get<double>(), single["test_loss"]["mean"].get<double>(), 1e-5);
  EXPECT_GT(single["test_loss"]["deviation"], 0);
  EXPECT_GT(ddp["step_bytes"]["mean"], 4 * (3072 * 16));
  EXPECT_FALSE(single.contains("step_bytes"));
  EXPECT_NE(file("compare.md").find("| ddp | 2 | "), std::string::npos);
  EXPECT_NE(out.find("| single | 1 | "), std::string::npos) << out;
  test::expect_xml(file("compare.svg"));

  // Finished runs are used as they are; unfinished ones are run.
  const std::string kept = file("single-1-seed-2/metrics.jsonl"), log = file("single-1-seed-2/train.log");
  fs::remove_all(folder_ / "r/ddp-2-seed-4");
  ASSERT_EQ(run(flags), 0) << err;
  EXPECT_EQ(std::count(out.begin(), out.end(), '['), 4) << out;
  EXPECT_NE(out.find("[3/4] single-1-seed-4: already finished\n[4/4] ddp-2-seed-4\n  epoch 1/1"), std::string::npos)
      << out;
  EXPECT_EQ(file("single-1-seed-2/train.log"), log);
  EXPECT_EQ(parse_json(file("compare.json"))["strategies"][1]["test_loss"], ddp["test_loss"]);

  const std::string other =
      "--lr 0.1: r/single-1-seed-2 was trained with 0.001 so far; use the same value, or choose another --out, or "
      "--overwrite";
  expect_error(flags + "--lr 0.1", 2, other);
  ASSERT_EQ(run("--strategies single --seeds 2 --epochs 2 --json"), 0) << err;  // continues with the second
  EXPECT_EQ(parse_json(out)["strategies"][0]["runs"].size(), 1u);
  EXPECT_EQ(file("single-1-seed-2/metrics.jsonl").substr(0, kept.find('\n')), kept.substr(0, kept.find('\n')));
  ASSERT_EQ(run("--strategies single --seeds 2 --epochs 1 --lr 0.1 --overwrite"), 0) << err;
  EXPECT_NE(file("single-1-seed-2/config.toml").find("lr = 0.1"), std::string::npos);
}

TEST_F(SweepCommand, TrainsAllCombinationsAndGoesOn) {
  const std::string flags = "--vary lr=1e-3,3e-3 --vary hidden=4,8 --seeds 2,4 ";
  ASSERT_EQ(run(flags), 0) << err;
  EXPECT_MENTIONS(out, "| lr | hidden | strategy | devices | images per step | validation top-1, % | test loss |");
  EXPECT_MENTIONS(out, "[8/8] lr-0.003-hidden-8-single-1-seed-4\n");
  EXPECT_MENTIONS(out, "Best validation top-1: lr ");
  const Json rows = parse_json(file("compare.json"))["strategies"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1]["settings"], (Json{{"lr", "0.001"}, {"hidden", "8"}}));
  EXPECT_TRUE(rows[1]["val_top1"].contains("deviation"));
  const std::string csv = file("compare.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_MENTIONS(file("lr-0.003-hidden-4-single-1-seed-2/config.toml"), "hidden = 4\n");
  EXPECT_MENTIONS(file("lr-0.003-hidden-4-single-1-seed-2/config.toml"), "lr = 0.003\n");
  EXPECT_MENTIONS(file("report.html"), R"("comparison":{"title":"mlp on shapes, 1 epoch")");
  EXPECT_MENTIONS(file("report.html"), R"("heads":["lr","hidden",)");
  test::expect_xml(file("compare.svg"));

  fs::remove_all(folder_ / "r/lr-0.003-hidden-8-single-1-seed-4");
  ASSERT_EQ(run(flags), 0) << err;
  EXPECT_MENTIONS(out,
                  "[7/8] lr-0.003-hidden-4-single-1-seed-4: already finished\n[8/8] "
                  "lr-0.003-hidden-8-single-1-seed-4\n  epoch 1/1");
  EXPECT_EQ(parse_json(file("compare.json"))["strategies"][3]["test_loss"], rows[3]["test_loss"]);
}

TEST_F(SweepCommand, GoesOnAfterATrainingThatFails) {
  expect_error("--vary lr=100000,1e-3 --hidden 4 --optimizer sgd --seeds 1", 1,
               "lr-1e+05-single-1-seed-1: the train loss");
  EXPECT_MENTIONS(out, "  failed: lr-1e+05-single-1-seed-1: the train loss became ");
  const Json rows = parse_json(file("compare.json"))["strategies"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["settings"], (Json{{"lr", "0.001"}}));
  EXPECT_MENTIONS(file("compare.md"), ". Failed: lr-1e+05-single-1-seed-1: the train loss became ");
  expect_error("--vary lr=100000,200000 --hidden 4 --optimizer sgd --seeds 1 --out all", 1,
               "2 trainings failed; the first: ");
}

TEST_F(CompareCommand, AWrongSweepTrainsNothing) {
  for (const auto& [flags, part] : std::vector<std::pair<std::string, std::string>>{
           {"lrr=1,2", "--vary: unknown key 'lrr'; did you mean lr?"},
           {"lr=0.1,abc", "--vary: lr abc: --lr: expected a number of at least 0, got 'abc'"},
           {"lr=0.1 --vary optimizer=adam,adma", "--optimizer: unknown value 'adma'; did you mean adam?"},
           {"lr=1e-3,0.001", "lr-0.001-single-1 is there twice"},
           {"lr=1,1", "expected different values"},
           {"lr=1 --vary lr=2", "--vary lr: given twice"},
           {"lr=1 --lr 2", "--lr and --vary lr: give only one of them"},
           {"3", "--vary 3: expected NAME=VALUE,VALUE"},
           {"lr=", "--vary lr: expected at least one"},
           {"seed=1,2", "--vary seed: use --seeds"},
           {"run=a,b", "--vary run: use --out"},
           {"temperature=1,2", "--temperature: only for self-supervised methods"},
           {"momentum=0.8,0.9", "--vary: momentum 0.8: --momentum: not a setting of adam; sgd"},
           {"warmup-epochs=1,9 --epochs 3", "--vary: warmup-epochs 9: --warmup-epochs 9: longer than the training"},
           {"lr=1,2 --memory", "--vary: for trainings; leave out --inference and --memory"}})
    expect_error("--devices 1 --vary " + flags, 2, part);
  EXPECT_FALSE(fs::exists(folder_ / "r"));
}

TEST_F(CompareCommand, TheTableSaysHowManyImagesAStepHas) {
  ASSERT_EQ(run("--batch-size-per-rank 16 --strategies single,ddp --seeds 2 --epochs 1 --max-steps 2"), 0) << err;
  EXPECT_MENTIONS(out, "| single | 1 | 16 |");
  EXPECT_MENTIONS(out, "| ddp | 2 | 32 |");
}

// Those of `train`, which are compiled in.
TEST_F(CompareCommand, StartsFromARecipe) {
  const std::string flags = "--preset shapes_mlp --strategies single --seeds 2 --max-steps 2 ";
  ASSERT_EQ(run(flags), 0) << err;
  EXPECT_MENTIONS(file("single-1-seed-2/config.toml"), "test-size = 60\n");
  ASSERT_EQ(run(flags), 0) << err;
  EXPECT_MENTIONS(out, "single-1-seed-2: already finished");
  expect_error("--preset corrected --strategies single", 2, "--preset corrected: a recipe of ringtape pretrain");
}

TEST_F(CompareCommand, FinishedRunsWhoseMetricsWereChangedAreRefused) {
  const std::string flags = "--strategies single --seeds 2,4 --epochs 2 ";
  ASSERT_EQ(run(flags), 0) << err;
  const std::string mine = file("single-1-seed-2/metrics.jsonl"), others = file("single-1-seed-4/metrics.jsonl");
  const auto refused = [&](const std::string& metrics, const std::string& part) {
    write_file((folder_ / "r/single-1-seed-2/metrics.jsonl").string(), metrics);
    expect_error(flags, 1, part);
  };
  refused(mine.substr(mine.find('\n') + 1), "single-1-seed-2/metrics.jsonl: was changed after the training");
  refused(others, "single-1-seed-2/metrics.jsonl: belongs to the run single-1-seed-4; bring the file back");
  refused(mine.substr(mine.rfind('\n', mine.size() - 2) + 1), "was changed after the training");
  write_file((folder_ / "r/single-1-seed-2/metrics.jsonl").string(), "");  // an unfinished run: it ends again
  EXPECT_EQ(run(flags), 1);
  EXPECT_NE(err.find("metrics.jsonl: has no line for the training of epoch 1 of 2"), std::string::npos) << err;
  write_file((folder_ / "r/single-1-seed-2/metrics.jsonl").string(), mine);
  EXPECT_EQ(run(flags), 0) << err;
}

TEST_F(CompareCommand, DataParallelSendsTheModelAndItsGradientsAtEachStep) {
  ASSERT_EQ(run("--strategies dp --seeds 2 --epochs 1 --json"), 0) << err;
  const Json row = parse_json(out)["strategies"][0];
  const double model = 4 * (3072 * 16 + 16 + 160 + 10), images = 4 * 16 * 3072;
  EXPECT_NEAR(row["step_bytes"]["mean"].get<double>(), 2 * model + images, 0.2 * images);  // the last batch is smaller
  EXPECT_FALSE(row.contains("hidden"));
  EXPECT_GT(row["peak_bytes"]["mean"], model);
}

TEST_F(CompareCommand, InferenceCountsWhatIsSent) {
  ASSERT_EQ(run("--inference --batch-sizes 8 --json"), 0) << err;
  const Json all = parse_json(out);
  EXPECT_EQ(all["devices"], 2);
  ASSERT_EQ(all["passes"].size(), 1u);
  const Json& pass = all["passes"][0];
  EXPECT_EQ(pass["batch"], 8);
  EXPECT_EQ(pass["inputs"], (Json{{"transfers", 1}, {"bytes", 4 * 4 * 784}}));
  EXPECT_EQ(pass["model"], (Json{{"transfers", 4}, {"bytes", 4 * (784 * 16 + 16 + 160 + 10)}}));
  EXPECT_EQ(pass["outputs"], (Json{{"transfers", 1}, {"bytes", 4 * 4 * 10}}));
  for (const char* way : {"single_s", "dp_s", "dp_persistent_s"}) EXPECT_GT(pass[way], 0) << way;
  ASSERT_EQ(run("--inference --batch-sizes 2"), 0) << err;
  EXPECT_NE(out.find("outputs back: 3 M"), std::string::npos);
  expect_error("--inference --devices 1", 2, "compare --inference: needs --devices 2 or more");
  expect_error("--inference --batch-sizes 0", 2, "--batch-sizes: expected a whole number");
}

TEST_F(CompareCommand, ASignalStopsTheTrainingBehindACheckpoint) {
  int code = -1;
  std::thread comparing([&] { code = run("--strategies single --seeds 2 --epochs 1000000"); });
  const fs::path begun = folder_ / "r/single-1-seed-2/checkpoints/last";
  for (int i = 0; i < 6000 && !fs::exists(begun); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(std::stoi(read_file((folder_ / "pid").string())), SIGTERM);
  comparing.join();
  EXPECT_EQ(code, 75) << err;
  EXPECT_NE(out.find("stopped by a signal; the same command continues"), std::string::npos) << out;
  EXPECT_NE(file("logs/single-1-seed-2.log").find("stopped by a signal at step "), std::string::npos);
}

TEST_F(CompareCommand, SaysWhatIsWrong) {
  expect_error("--strategies single,sharded", 2, "--strategies: unknown strategy 'sharded'");
  expect_error("--strategies single,single", 2, "expected different values");
  expect_error("--seeds 1,x", 2, "--seeds: expected a whole number");
  expect_error("--seeds ,", 2, "--seeds");
  expect_error("--strategy ddp", 2, "unknown flag --strategy; did you mean --strategies?");
  EXPECT_FALSE(fs::exists(folder_ / "r"));
  expect_error("--seeds 1 --val-size 999", 2, "single-1-seed-1: --val-size 999: ");
  expect_error("--seeds 1 --weights /nowhere.safetensors", 1, "single-1-seed-1: /nowhere.safetensors: cannot open");
  EXPECT_NE(err.find("; its complete output is in r/logs/single-1-seed-1.log"), std::string::npos) << err;
}

}  // namespace
}  // namespace ringtape
