// `ringtape compare --memory`: its table, and the command that measures.
#include "tests/support/compare_command.h"
#include "tests/support/support.h"
#include "train/compare/memory_table.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

MemoryRow measured(const std::string& strategy, int64_t devices, double state) {
  FinishedRun run;
  run.path = "r/" + strategy, run.state_bytes = state, run.process_bytes = 90e6;
  for (const auto& [split, peak] : {std::pair("train", 60e6), {"train", 61e6}, {"test", 80e6}}) {
    Metrics& m = run.metrics.emplace_back();
    m.split = split, m.peak_bytes = peak;
  }
  return {strategy, devices, 40'000'000, 5'000'000, run};
}

TEST(CompareMemory, TableHasWhatIsMeasuredBesideTheFormula) {
  const std::vector<MemoryRow> rows = {measured("zero2", 4, 40.3e6), {"ddp", 4, 2'860'000'000, 0, {}}};
  const std::string table = memory_table(rows).markdown();
  EXPECT_MENTIONS(table, "\n| zero2 | 4 | 40.0 | 40.3 | 0.75 | 5.0 | 61.0 | 90.0 |\n");
  EXPECT_MENTIONS(table, "\n| ddp | 4 | 2860.0 | does not fit | - | 0.0 | - | - |\n");
  const Json json = memory_json(rows);
  EXPECT_NEAR(json[0]["deviation"].get<double>(), 0.0075, 1e-12);
  EXPECT_EQ(json[0]["peak_bytes"], 61e6);
  EXPECT_EQ(json[0]["bucket_bytes"], 5'000'000);
  EXPECT_EQ(json[1], (Json{{"strategy", "ddp"},
                           {"devices", 4},
                           {"formula_bytes", 2'860'000'000},
                           {"bucket_bytes", 0},
                           {"fits", false}}));
}

TEST(CompareMemory, RunsOfEarlierVersionsHaveNoFigureOfTheProcess) {
  MemoryRow row = measured("zero1", 2, 40e6);
  row.run->process_bytes = {}, row.run->state_bytes = {};
  EXPECT_MENTIONS(memory_table({row}).markdown(), "\n| zero1 | 2 | 40.0 | - | - | 5.0 | 61.0 | - |\n");
}

class CompareMemoryCommand : public test::CompareCommand {
 protected:
  CompareMemoryCommand()
      : test::CompareCommand(RINGTAPE_BINARY, "--memory --device cpu --threads 1 --workers 0 --out r") {}
};

TEST_F(CompareMemoryCommand, MeasuresWhatTheFormulaSays) {
  const std::string flags = "--hidden 256 --ema 0.9 --batch-size 2 --bucket-mb 1 ";
  ASSERT_EQ(run(flags + "--devices 2,3 --strategies single,ddp,zero1,zero2,fsdp"), 0) << err;
  const Json all = parse_json(file("compare.json"));
  const auto parameters = all["parameters"].get<double>();
  EXPECT_EQ(parameters, 3072 * 256 + 256 + 2560 + 10);
  ASSERT_EQ(all["memory"].size(), 9u);
  for (const Json& row : all["memory"]) {
    EXPECT_TRUE(row["fits"].get<bool>());
    EXPECT_GE(row["deviation"], 0) << row.text();  // of the rank that has most: rank 0 has less
    EXPECT_LE(row["deviation"], 0.01) << row.text();
    EXPECT_GT(row["peak_bytes"], row["state_bytes"]) << row.text();
    EXPECT_GT(row["process_bytes"], row["state_bytes"]) << row.text();
    EXPECT_FALSE(fs::exists(folder_ / row["run"].get<std::string>() / "exported"));
  }
  const Json &single = all["memory"][0], &fsdp = all["memory"][4];
  EXPECT_EQ(single["devices"], 1);
  EXPECT_EQ(single["formula_bytes"], 4 * 5 * parameters);
  EXPECT_EQ(fsdp["strategy"], "fsdp");
  EXPECT_NEAR(fsdp["formula_bytes"].get<double>(), 4 * 5 * parameters / 2, 32);
  EXPECT_NEAR(fsdp["bucket_bytes"].get<double>(), 8 * parameters, 256);  // at most three, here all
  EXPECT_MENTIONS(out, "| zero2 | 3 | ");
  EXPECT_MENTIONS(file("compare.md"), "# memory of mlp with adam, 0.8 M parameters\n\n| strategy | devices | model");
  EXPECT_FALSE(fs::exists(folder_ / "r/compare.svg"));

  // Finished runs are used as they are.
  ASSERT_EQ(run(flags + "--devices 2 --strategies zero1 --json"), 0) << err;
  EXPECT_EQ(parse_json(out)["memory"][0]["run"], "r/zero1-2-seed-1");
  EXPECT_EQ(parse_json(out)["memory"][0]["state_bytes"], all["memory"][2]["state_bytes"]);
}

TEST_F(CompareMemoryCommand, KeepsWhatIsGiven) {
  write_file((folder_ / "c.toml").string(), "limit_train_batches = 2\nhidden = 8\ntest_size = 9\n");
  ASSERT_EQ(run("--config c.toml --strategies single --epochs 2 --batch-size 4"), 0) << err;
  const std::string config = file("single-1-seed-1/config.toml");
  for (const char* line : {"limit-train-batches = 2\n", "hidden = 8\n", "test-size = 9\n", "epochs = 2\n",
                           "train-size = 12\n", "val-size = 0\n"})
    EXPECT_MENTIONS(config, concat("\n", line));
}

TEST_F(CompareMemoryCommand, ARowThatDoesNotFitSaysSo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than the limit";
#endif
  ASSERT_EQ(
      run("--hidden 20000 --batch-size 2 --devices 2 --strategies ddp,zero1 --transport tcp", "ulimit -v 1400000;"), 0)
      << err;
  EXPECT_MENTIONS(out, "| ddp | 2 | 986.6 | does not fit | - | 0.0 | - | - |\n| zero1 | 2 | 739.9 | 739.9 | ");
  EXPECT_MENTIONS(out, "with --strategy zero1 ");  // the error of the training
  EXPECT_TRUE(parse_json(file("compare.json"))["memory"][1]["fits"].get<bool>());
}

TEST_F(CompareMemoryCommand, SaysWhatIsWrong) {
  expect_error("--methods simclr", 2, "--methods, --inference and --memory: give only one");
  expect_error("--inference", 2, "--methods, --inference and --memory: give only one");
  expect_error("--devices 2,x", 2, "--devices: expected a whole number from 1 to 4096, got 'x'");
  expect_error("--devices 2,2", 2, "--devices 2,2: expected different values, separated by commas");
  expect_error("--strategies zero4", 2, "--strategies: unknown strategy 'zero4'");
  expect_error("--gradient-reduction powersgd", 2, "powersgd: needs whole gradients, which --strategy zero2 does not");
  expect_error("--strategies ddp,zero1 --keep-weights", 2, "--keep-weights: none of --strategies has this setting");
  expect_error("--devices 4 --strategies hsdp --shard-within 3", 2, "it must divide the number of ranks, 4");
  expect_error("--seeds 1", 2, "--seeds: memory does not depend on it; leave it out");
  EXPECT_FALSE(fs::exists(folder_ / "r"));
}

}  // namespace
}  // namespace ringtape
