// Run directories that users have changed, with copies, shorter logs, other data and files of older releases, and how a
// training resumes there.

#include <sstream>

#include "kernels/cpu_isa.h"
#include "tests/support/cli_command.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"
#include "train/settings/given.h"

namespace ringtape {
namespace {

const fs::path kFixtures = fs::path(RINGTAPE_SOURCE_DIR) / "tests/fixtures";

class ResumeAgainTest : public CliTest {
 protected:
  // 4 steps per epoch; checkpoints 2 4 6 8 10 12 in three epochs.
  static constexpr const char* kTiny =
      "train --train-size 44 --test-size 10 --val-size 4 --hidden 2 --batch-size 10 --threads 1 --checkpoint-steps 2 "
      "--keep 9 --run r ";
  fs::path file(const std::string& name) const { return folder_ / "work/runs/r" / name; }
  fs::path checkpoint(int step) const {
    return file("checkpoints") / ("step-000000" + std::string(step < 10 ? "0" : "") + std::to_string(step));
  }
  void train(const std::string& more) {
    const CliResult r = run(kTiny + more);
    ASSERT_EQ(r.code, 0) << r.err;
  }
  std::string weights() const { return read_file(file("exported/model.safetensors").string()); }
  void take_run(const std::string& fixture) {
    fs::create_directories(folder_ / "work/runs");
    fs::remove_all(folder_ / "work/runs/r");
    copy(kFixtures / fixture, folder_ / "work/runs/r");
  }
  void copy(const fs::path& from, const fs::path& to) const { fs::copy(from, to, fs::copy_options::recursive); }
};

TEST_F(ResumeAgainTest, CopiesOfCheckpointsAreLeftAlone) {
  train("--epochs 3");
  const std::string whole = weights();
  copy(checkpoint(10), checkpoint(10).string() + ".bak");
  copy(checkpoint(4), checkpoint(4).string() + "-copy");
  fs::create_directories(file("checkpoints/step-best-of-all"));
  write_file(file("checkpoints/step-best-of-all/notes.txt").string(), "mine");
  fs::copy_file(file("config.toml"), file("config.toml.backup"));
  write_file(file("exported/model.safetensors.sha256").string(), "mine");
  write_file(file("env.json.ringtape-abc123.tmp").string(), "left by a process that was killed");
  fs::create_directories(file("checkpoints/step-00000014.ringtape-abc123.tmp"));
  const CliResult r = run(std::string(kTiny) + "--resume --epochs 4 --keep 1");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "/step-00000012: step 12");
  for (const char* name :
       {"checkpoints/step-00000010.bak/state.json", "checkpoints/step-00000004-copy/state.json",
        "checkpoints/step-best-of-all/notes.txt", "config.toml.backup", "exported/model.safetensors.sha256"})
    EXPECT_TRUE(fs::exists(file(name))) << name;
  EXPECT_FALSE(fs::exists(file("env.json.ringtape-abc123.tmp")));
  EXPECT_FALSE(fs::exists(file("checkpoints/step-00000014.ringtape-abc123.tmp")));
  EXPECT_FALSE(fs::exists(checkpoint(10)));
  const CliResult again = run(std::string(kTiny) + "--overwrite --epochs 3");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(weights(), whole);
  for (const char* name : {"checkpoints/step-00000010.bak/state.json", "checkpoints/step-best-of-all/notes.txt",
                           "config.toml.backup", "exported/model.safetensors.sha256"})
    EXPECT_TRUE(fs::exists(file(name))) << name;
  EXPECT_FALSE(fs::exists(checkpoint(16)));
}

TEST_F(ResumeAgainTest, ALinkThatWasLeftBehindIsBroughtUpToDate) {
  train("--epochs 3");
  fs::remove(file("checkpoints/last"));
  fs::create_directory_symlink("step-00000010", file("checkpoints/last"));
  const CliResult r = run(std::string(kTiny) + "--resume --keep 2 --epochs 3");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(fs::read_symlink(file("checkpoints/last")), "step-00000012");
  EXPECT_FALSE(fs::exists(checkpoint(2)) || fs::exists(checkpoint(6))) << "more than are kept";
  EXPECT_TRUE(fs::exists(checkpoint(10)));
}

// A metrics file does not influence the weights.
TEST_F(ResumeAgainTest, MetricsThatWereCutAreWarnedOf) {
  train("--epochs 2");
  const std::string jsonl = read_file(file("metrics.jsonl").string()), csv = read_file(file("metrics.csv").string());
  const size_t line = jsonl.find('\n') + 1;
  const auto resume = [&] {
    const CliResult r = run(std::string(kTiny) + "--resume --epochs 3");
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_MENTIONS(read_file(file("train.log").string()), "metrics.jsonl");
    fs::remove_all(checkpoint(10)), fs::remove_all(checkpoint(12));
    return r.err;
  };
  write_file(file("metrics.jsonl").string(), jsonl.substr(0, line + 17));
  EXPECT_MENTIONS(resume(), "warning: runs/r/metrics.jsonl: has " + std::to_string(line) +
                                " bytes in complete lines, the checkpoint expects ");
  EXPECT_TRUE(read_file(file("metrics.jsonl").string())
                  .starts_with(jsonl.substr(0, line) + "{\"split\":\"train\",\"epoch\":3"));
  fs::remove(file("metrics.jsonl"));
  write_file(file("metrics.csv").string(), csv.substr(0, 20));
  const std::string both = resume();
  EXPECT_MENTIONS(both, "metrics.jsonl: has 0 bytes in complete lines, the checkpoint expects ");
  EXPECT_MENTIONS(both, "metrics.csv: has 0 bytes in complete lines, the checkpoint expects ");
  EXPECT_TRUE(read_file(file("metrics.csv").string()).starts_with("split,epoch,step,loss"));
  std::string damaged = jsonl;
  damaged.replace(0, 16, "{\"split\":1.5    ");
  write_file(file("metrics.jsonl").string(), damaged);
  write_file(file("metrics.csv").string(), csv);
  EXPECT_MENTIONS(resume(), "metrics.jsonl:1: split: expected a string, got 1.5; ignored");
}

TEST_F(ResumeAgainTest, ABatchThatIsNoneIsNotLookedUp) {
  train("--epochs 2");
  const std::string state = read_file((checkpoint(8) / "state.json").string());
  const Json json = parse_json(state);
  EXPECT_EQ(json["data"]["train"], 44);
  EXPECT_EQ(json["settings"]["hidden"], "2");
  for (const std::string& bad :
       {std::string("[") + std::string(60'000, '['), std::string("{\"crc32\": \"0\", \"state\": {\"batch\": -3}}")}) {
    write_file((checkpoint(8) / "state.json").string(), bad);
    const CliResult r = run(std::string(kTiny) + "--resume --epochs 2");
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_MENTIONS(r.out, "checkpoint not used: runs/r/checkpoints/step-00000008/state.json: ");
    EXPECT_MENTIONS(r.out, "/step-00000006: step 6");
  }
  for (int step : {2, 4, 6, 8}) fs::resize_file(checkpoint(step) / "model.safetensors", 9);
  const CliResult r = run(std::string(kTiny) + "--resume --epochs 2");
  EXPECT_EQ(r.code, 1);
  EXPECT_MENTIONS(r.err, "none of the checkpoints can be used; repair one, or start again with --overwrite");
  EXPECT_TRUE(fs::exists(checkpoint(2)));
}

TEST_F(ResumeAgainTest, AnotherDataSetIsRefused) {
  const std::string set = write_idx_set(false),
                    common = "train --data mnist --hidden 2 --batch-size 4 --val-size 2 --threads 1 --run r ";
  const CliResult first = run(common + "--epochs 1 --data-dir " + set);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string other = (folder_ / "other").string();
  copy(set, other);
  std::string labels = read_file(other + "/t10k-labels-idx1-ubyte");
  labels.back() = 4;
  write_file(other + "/t10k-labels-idx1-ubyte", labels);
  const CliResult r = run(common + "--resume --epochs 2 --data-dir " + other);
  EXPECT_EQ(r.code, 2);
  EXPECT_MENTIONS(r.err,
                  "was written with another data set, of 20 training and 20 test images, CRC-32 of their labels ");
  EXPECT_MENTIONS(r.err, "; this one has 20 training and 20 test images, CRC-32 of their labels ");
  EXPECT_EQ(run(common + "--resume --epochs 2 --data-dir " + set).code, 0);
}

// Made by the first version, whose checkpoints have a checksum of the settings; options that were added later do not
// matter.
TEST_F(ResumeAgainTest, ARunOfTheFirstVersionGoesOn) {
  take_run("run_0_1");
  const CliResult wrong = run("train --run r --resume --epochs 2 --lr 0.5");
  EXPECT_EQ(wrong.code, 2);
  const CliResult r = run("train --run r --resume --epochs 2");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_MENTIONS(r.out, "resume runs/r/checkpoints/step-00000004: step 4, in epoch 2");
  EXPECT_TRUE(fs::exists(checkpoint(8)));
  EXPECT_TRUE(parse_json(read_file((checkpoint(8) / "state.json").string()))["settings"].is_object());
}

// All lines of a file, in order, but for a setting of strategies that are not chosen; between them are settings that
// came later.
void expect_lines_of(const fs::path& before, const std::string& now) {
  std::istringstream lines(read_file(before.string())), all(now);
  std::string line;
  for (std::string wanted; std::getline(lines, wanted);) {
    if (wanted == "dp-persistent = false") continue;
    while (std::getline(all, line) && line != wanted) EXPECT_MENTIONS(line, " = ");
    ASSERT_EQ(line, wanted) << before << " has it, " << now << " has not";
  }
  while (std::getline(all, line)) EXPECT_MENTIONS(line, " = ");
}

// Of revision 947a2c6: a run that ended in the second of two epochs, and the weights it would have had, computed with
// AVX-512 by GCC 12.2. Another compiler, or one that adds sanitizers, rounds other products, another instruction set
// adds in another order. A kernel that is changed to do so needs these weights anew.
TEST_F(ResumeAgainTest, ARunWithoutLabelsEndsWithTheSameWeights) {
  const fs::path fixture = kFixtures / "run_ssl";
  const std::string weights = (fixture / "backbone.safetensors").string();
  for (const CpuIsa isa : cpu_isas()) {
    SCOPED_TRACE(name_of(isa));
    take_run("run_ssl/run");
    const CliResult r = run("pretrain --run r --resume", concat("RINGTAPE_CPU_ISA=", name_of(isa)));
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err, "");
    EXPECT_MENTIONS(r.out, "resume runs/r/checkpoints/step-00000004: step 4, in epoch 2");
    expect_lines_of(fixture / "run/config.toml", read_file(file("config.toml").string()));
    const std::string exported = file("exported/backbone.safetensors").string();
    const Safetensors then = read_safetensors(weights), now = read_safetensors(exported);
    ASSERT_EQ(now.tensors.size(), then.tensors.size());
    const Json env = parse_json(read_file(file("env.json").string()));
#if defined(__SANITIZE_ADDRESS__)
    const bool same_machine = false;
#else
    const bool same_machine = env["isa"] == "avx512" && env["compiler"] == "GCC 12.2.0";
#endif
    for (const auto& [name, tensor] : then.tensors) {
      test::expect_close(now[name], tensor, 1e-4, 2e-6, name);
      EXPECT_TRUE(!same_machine || test::values(now[name]) == test::values(tensor)) << name;
    }
    for (const auto& [key, value] : then.metadata)  // there may be more, of settings that came later
      EXPECT_TRUE(now.metadata.contains(key)) << key;
  }
}

TEST(SettingsThatAreKept, AreWrittenAgainAsTheyWere) {
  for (const char* file : {"run_ssl/run/config.toml", "train.toml"}) {
    TrainOptions options;
    apply_settings(options, {read_config((kFixtures / file).string())});
    expect_lines_of(kFixtures / file, config_text(options));
  }
}

TEST_F(ResumeAgainTest, OtherSettingsAreNamed) {
  train("--epochs 1");
  const std::string config = read_file(file("config.toml").string());
  std::string edited = config;
  edited.replace(edited.find("lr = 0.001"), 10, "lr = 0.002");
  write_file(file("config.toml").string(), edited);
  const CliResult r = run("train --run r --resume --epochs 2");
  EXPECT_EQ(r.code, 2);
  EXPECT_MENTIONS(r.err,
                  "step-00000004: was written with other settings than config.toml has now: --lr 0.002 (was 0.001); "
                  "restore that file");
  write_file(file("config.toml").string(), config);
  EXPECT_EQ(run("train --run r --resume --epochs 2").code, 0);
}

TEST_F(ResumeAgainTest, AConfigurationOfOneLongLineIsRefused) {
  std::string key = "a";
  for (int i = 0; i < 40'000; ++i) key += ".a";
  write_file((folder_ / "c.toml").string(), key + " = 1\n");
  expect_error("train --config " + (folder_ / "c.toml").string(), 1, "c.toml:1: a line of 80005 bytes");
  write_file((folder_ / "c.toml").string(), std::string(2 << 20, '\n'));
  expect_error("train --config " + (folder_ / "c.toml").string(), 1,
               "c.toml: longer than the maximum of 1048576 bytes");
}

}  // namespace
}  // namespace ringtape
