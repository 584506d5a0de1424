// --on-save: a command gets each finished checkpoint and export once, in order, while the training goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/cli_command.h"
#include "train/io/process.h"

namespace ringtape {
namespace {

class OnSaveTest : public CliTest {
 protected:
  // A program that notes what it is called with, after `before`; of what is not complete it notes that.
  void hook(const std::string& name, const std::string& before = "") {
    const std::string path = (folder_ / name).string();
    write_file(path, "#!/bin/sh\n" + before + "\n[ -e \"$1/state.json\" ] || [ -e \"$1/model.safetensors\" ] || " +
                         "echo incomplete >>" + called_file() + "\necho \"$RINGTAPE_SAVED $RINGTAPE_RUN $1\" >>" +
                         called_file() + "\n");
    fs::permissions(path, fs::perms::owner_all);
  }
  std::string called_file() const { return (folder_ / "called").string(); }
  std::vector<std::string> called() const {
    std::vector<std::string> out;
    if (!fs::exists(called_file())) return out;
    std::istringstream lines(read_file(called_file()));
    for (std::string line; std::getline(lines, line);) out.push_back(line);
    return out;
  }
  CliResult train(const std::string& more) {
    return run(
        "train --data shapes --train-size 64 --val-size 16 --test-size 16 --batch-size 16 --model mlp --hidden 8 "
        "--keep 1 --snapshots 0 --run r " +
        more);
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_ / "work/runs/r/checkpoints"))
      if (const std::string name = entry.path().filename(); name.starts_with("step-") && !name.ends_with(".tmp"))
        out.push_back(name);  // neither links nor what a killed process has begun
    return out;
  }
  const std::vector<std::string> all_ = {
      "checkpoint runs/r runs/r/checkpoints/step-00000003", "checkpoint runs/r runs/r/checkpoints/step-00000006",
      "checkpoint runs/r runs/r/checkpoints/step-00000009", "export runs/r runs/r/exported"};
};

TEST_F(OnSaveTest, EachIsGivenOnceInOrder) {
  hook("h");
  const CliResult first = train("--epochs 3 --on-save " + (folder_ / "h").string());
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(called(), all_);
  ASSERT_EQ(train("--resume").code, 0);  // config.toml has the command; there is nothing new
  EXPECT_EQ(called(), all_);
  ASSERT_EQ(train("--resume --epochs 4").code, 0);
  EXPECT_EQ(called().size(), all_.size() + 2);
  ASSERT_EQ(train("--overwrite --epochs 1 --on-save '\"" + (folder_ / "h").string() + "\"'").code, 0);
  EXPECT_EQ(called().size(), all_.size() + 4);  // another run
  ASSERT_EQ(train("--overwrite --epochs 1 --on-save 'cp -r --parents {} " + folder_.string() + "'").code, 0);
  EXPECT_EQ(read_file(folder_ / "runs/r/checkpoints/step-00000003/state.json"),
            read_file(folder_ / "work/runs/r/checkpoints/step-00000003/state.json"));
}

TEST_F(OnSaveTest, ASlowOneFindsEachCheckpointAndHoldsNothingUp) {
  hook("h", "sleep 0.4");
  ASSERT_EQ(train("--epochs 3 --on-save " + (folder_ / "h").string()).code, 0);
  EXPECT_EQ(called(), all_);
  EXPECT_EQ(checkpoints(), std::vector<std::string>{"step-00000009"});
}

TEST_F(OnSaveTest, SnapshotsAreGivenToo) {
  write_file((folder_ / "h").string(),
             "#!/bin/sh\n[ -d \"$1\" ] || echo \"$RINGTAPE_SAVED $(wc -c <\"$1\") $1\" >>" + called_file() + "\n");
  fs::permissions(folder_ / "h", fs::perms::owner_all);
  const std::string more = " --snapshots 3 --on-save " + (folder_ / "h").string();
  ASSERT_EQ(train("--epochs 3" + more).code, 0);
  std::vector<std::string> expected;
  for (const char* name : {"epoch-0001", "epoch-0002", "epoch-0003", "test"}) {
    const std::string path = concat("runs/r/snapshots/", name, ".safetensors");
    expected.push_back(concat("snapshot ", fs::file_size(folder_ / "work" / path), " ", path));
  }
  EXPECT_EQ(called(), expected);
  ASSERT_EQ(train("--resume" + more).code, 0);  // the same again, not given again
  EXPECT_EQ(called(), expected);
  fs::remove(folder_ / "work/runs/r/.delivered");
  ASSERT_EQ(train("--resume" + more).code, 0);  // as if it had been killed before they were given
  EXPECT_EQ(called().size(), 2 * expected.size());
}

TEST_F(OnSaveTest, AFailureIsSaidAndRepeated) {
  hook("h", "[ -e " + called_file() + "2 ] || { touch " + called_file() + "2; echo full >&2; exit 7; }");
  const CliResult done = train("--epochs 3 --on-save-timeout 60 --on-save " + (folder_ / "h").string());
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(called(), all_);
  EXPECT_MENTIONS(done.err, "--on-save: for runs/r/checkpoints/step-00000003: ended with 7: full");
}

TEST_F(OnSaveTest, WhatFailedIsGivenAgainOnResume) {
  hook("hangs", "sleep 100");
  const CliResult done = train("--epochs 1 --on-save-timeout 0.05 --on-save " + (folder_ / "hangs").string());
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_MENTIONS(done.err, ": took more than 0.05 s");
  EXPECT_MENTIONS(done.out, "--on-save has not had runs/r/checkpoints/step-00000003, runs/r/exported");
  EXPECT_EQ(called(), std::vector<std::string>{});
  hook("h");
  ASSERT_EQ(train("--resume --on-save-timeout 60 --on-save " + (folder_ / "h").string()).code, 0);
  EXPECT_EQ(called(), (std::vector<std::string>{all_[0], all_[3]}));
}

TEST_F(OnSaveTest, OldCheckpointsStayUntilItHasHadThem) {
  const auto count = [](const std::vector<std::string>& list, const std::string& what) {
    return std::count(list.begin(), list.end(), what);
  };
  hook("h", "case $1 in *3) exit 1;; esac");
  ASSERT_EQ(train("--epochs 3 --on-save-timeout 0.5 --on-save " + (folder_ / "h").string()).code, 0);
  EXPECT_EQ(count(checkpoints(), "step-00000003"), 1);
  // A damaged one is not given. The others are, once, now or on resume.
  write_file((folder_ / "work/runs/r/checkpoints/step-00000003/model.safetensors").string(), "cut");
  hook("h");
  const CliResult again = train("--resume --epochs 4 --on-save-timeout 60 --on-save " + (folder_ / "h").string());
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_MENTIONS(again.err, "--on-save: not called for runs/r/checkpoints/step-00000003");
  EXPECT_EQ(count(called(), all_[0]), 0);
  EXPECT_EQ(count(called(), all_[1]), 1);
  EXPECT_EQ(count(called(), all_[2]), 1);
  EXPECT_EQ(count(checkpoints(), "step-00000003"), 0);
}

TEST_F(OnSaveTest, AResumedRunGivesWhatAKilledOneCouldNot) {
  hook("kills", "kill -KILL $PPID; exit 1");
  EXPECT_NE(train("--epochs 3 --checkpoint-steps 1 --on-save " + (folder_ / "kills").string()).code, 0);
  std::vector<std::string> left = checkpoints();
  hook("h");
  ASSERT_EQ(train("--resume --on-save " + (folder_ / "h").string()).code, 0);
  const std::vector<std::string> all = called();
  for (const std::string& each : left)
    EXPECT_EQ(std::count(all.begin(), all.end(), "checkpoint runs/r runs/r/checkpoints/" + each), 1) << each;
  EXPECT_EQ(all.back(), all_[3]);
}

TEST_F(OnSaveTest, OthersFilesBesideTheExportDoNotMatter) {
  hook("h");
  ASSERT_EQ(train("--epochs 1").code, 0);
  write_file((folder_ / "work/runs/r/exported/own.safetensors").string(), "garbage");
  const CliResult done = train("--resume --on-save " + (folder_ / "h").string());
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(called(), (std::vector<std::string>{all_[0], all_[3]}));
}

TEST_F(OnSaveTest, ASignalEndsTheWaitAtTheEnd) {
  hook("h", "if [ $RINGTAPE_SAVED = export ]; then kill -TERM $PPID; sleep 100; fi");
  const CliResult done = train("--epochs 3 --on-save " + (folder_ / "h").string());
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_MENTIONS(done.out, "--on-save has not had runs/r/exported");
  EXPECT_EQ(called(), (std::vector<std::string>{all_[0], all_[1], all_[2]}));
}

TEST_F(OnSaveTest, TheEnvironmentNamesOneToo) {
  hook("h");
  EXPECT_EQ(run("train --data shapes --train-size 64 --val-size 16 --test-size 16 --batch-size 16 --model mlp --epochs "
                "1 --snapshots 0 --run r",
                "RINGTAPE_ON_SAVE=" + (folder_ / "h").string())
                .code,
            0);
  EXPECT_EQ(called().size(), 2u);
}

TEST_F(OnSaveTest, ACommandThatCannotBeStartedIsRefusedAtOnce) {
  expect_error("train --on-save no-such-program", 2, "there is no program 'no-such-program'");
  expect_error("train --on-save /etc/passwd", 2, "there is no program '/etc/passwd'");
  expect_error("train --on-save \"cp 'a\"", 2, "--on-save: an open '");
  write_file((folder_ / "plain").string(), "echo hi\n");
  fs::permissions(folder_ / "plain", fs::perms::owner_all);
  expect_error("train --on-save " + (folder_ / "plain").string(), 2, "a script begins with a line such as #!/bin/sh");
}

TEST(Process, SplitsWordsAsAShellDoes) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_words("  cp -r  'a b'\"c d\"\\ e '' \"x\\\"y\" ", "x"), (Words{"cp", "-r", "a bc d e", "", "x\"y"}));
  EXPECT_EQ(split_words(" \t", "x"), Words{});
  EXPECT_EQ(split_words("a\\", "x"), Words{"a\\"});
  EXPECT_MENTIONS(test::message_of<UsageError>([] { split_words("a \"b", "x"); }), "x: an open \"");
}

TEST(Process, IsEndedWithAllThatItStarted) {
  const Finished done =
      run_program({"sh", "-c", "sleep 100 & echo said; sleep 100"}, {.quiet = true, .time_limit = 0.2});
  EXPECT_FALSE(done.in_time);
  EXPECT_EQ(done.code, 128 + SIGKILL);
  EXPECT_EQ(done.error, "said");
  std::atomic<bool> cancelled = true;
  EXPECT_FALSE(run_program({"sleep", "100"}, {.cancelled = &cancelled}).in_time);
  // What goes on behind it does not hold it up.
  const Finished behind = run_program({"sh", "-c", "sleep 2 & echo a; exit 3"}, {.quiet = true, .time_limit = 60});
  EXPECT_TRUE(behind.in_time);
  EXPECT_EQ(behind.code, 3);
  EXPECT_EQ(behind.error, "a");
  EXPECT_EQ(
      run_program({"sh", "-c", "yes | head -c 100000 >&2; echo $A >&2"}, {.environment = {"A=b"}}).error.substr(4092),
      "y\nb");
}

}  // namespace
}  // namespace ringtape
