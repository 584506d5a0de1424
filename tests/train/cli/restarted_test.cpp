// What a training does with its run if its job is started again by a launcher.

#include "tests/support/cli_command.h"

namespace ringtape {
namespace {

constexpr const char* kGoesOn =
    "restart 1: goes on with runs/r as with --resume; --overwrite was for the first attempt\n";

class RestartedTest : public CliTest {
 protected:
  static constexpr const char *kTiny =
                                  "train --train-size 44 --test-size 10 --val-size 4 --hidden 2 --batch-size 10 "
                                  "--threads 1 --checkpoint-steps 2 --epochs 3 --run r ",
                              *kFirst = "TORCHELASTIC_MAX_RESTARTS=1 TORCHELASTIC_RESTART_COUNT=0",
                              *kAgain = "TORCHELASTIC_MAX_RESTARTS=1 TORCHELASTIC_RESTART_COUNT=1";
  CliResult train(const std::string& flags, const char* variables = "") { return run(kTiny + flags, variables); }
  std::string weights() const { return read_file((folder_ / "work/runs/r/exported/model.safetensors").string()); }
  bool has(const std::string& name) const { return fs::exists(folder_ / "work/runs/r" / name); }
};

TEST_F(RestartedTest, OverwriteIsForTheFirstAttempt) {
  ASSERT_EQ(train("").code, 0);
  const std::string whole = weights();
  ASSERT_EQ(train("--lr 0.5").code, 2);
  ASSERT_EQ(train("--overwrite --max-steps 6", kFirst).code, 0);
  EXPECT_FALSE(has(".replace"));
  const CliResult again = train("--overwrite --max-steps 0", kAgain);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_MENTIONS(again.err, kGoesOn);
  EXPECT_MENTIONS(again.out, "resume runs/r/checkpoints/step-00000006: step 6");
  EXPECT_TRUE(weights() == whole);
  EXPECT_EQ(train("--overwrite --resume", kAgain).code, 2);  // as in the first attempt
}

TEST_F(RestartedTest, ARunThatTheFirstAttemptHasNotReplacedIsReplaced) {
  ASSERT_EQ(train("--lr 0.5").code, 0);
  const CliResult first = train("--overwrite --weights missing.safetensors", kFirst);
  ASSERT_NE(first.code, 0);
  EXPECT_TRUE(has("exported/model.safetensors"));
  const CliResult again = train("--overwrite", kAgain);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_LACKS(again.out + again.err, "resume");
  EXPECT_FALSE(has(".replace"));
  ASSERT_NE(train("--overwrite --weights missing.safetensors", kFirst).code, 0);
  EXPECT_TRUE(has(".replace"));
  EXPECT_EQ(train("--resume --epochs 4").code, 0);  // the user wants it after all
  EXPECT_FALSE(has(".replace"));
}

TEST_F(RestartedTest, WithoutResumeTorchrunIsToldWhatToGive) {
  const CliResult first = train("", kFirst);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_MENTIONS(first.err,
                  "torchrun may restart this training, which then ends or begins anew: with --run NAME "
                  "--resume it goes on from its newest checkpoint\n");
  const CliResult again = train("", kAgain);
  EXPECT_EQ(again.code, 2);
  EXPECT_EQ(again.err,
            "ringtape: error: --run runs/r: holds a run already, and this is restart 1 of the job: give "
            "--resume, with which the first attempt begins the run and each restart goes on\n");
  const CliResult resumed = train("--resume --epochs 4", kAgain);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_LACKS(resumed.err, "restart");
}

TEST_F(RestartedTest, LaunchGoesOnAfterOverwrite) {
  ASSERT_EQ(train("").code, 0);
  const std::string whole = weights();
  write_file((folder_ / "work/once").string(), "test -e told || { touch told; kill -9 $PPID; }\n");
  const CliResult r = run(concat("launch -n 1 --max-restarts 1 -- ", kTiny, "--overwrite --on-save 'sh ./once'"));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.err, "ringtape: restart 1 of 1\n");
  EXPECT_MENTIONS(r.err, kGoesOn);
  EXPECT_TRUE(weights() == whole);
}

}  // namespace
}  // namespace ringtape
