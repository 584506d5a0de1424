// Runs of which something cannot be read, or is not where it was: a training does not begin anew there, and changes
// nothing.
#include <map>

#include "core/text.h"
#include "tests/support/cli_command.h"

namespace ringtape {
namespace {

class UnreadableRunTest : public CliTest {
 protected:
  // 4 steps per epoch; checkpoints 4 8 ... after each epoch.
  static constexpr const char* kTiny =
      "train --train-size 44 --test-size 10 --val-size 4 --hidden 2 --batch-size 10 --threads 1 --keep 9 --run r ";
  using Content = std::map<std::string, std::string>;

  fs::path file(const std::string& name) const { return folder_ / "work/runs/r" / name; }
  fs::path checkpoints() const { return file("checkpoints"); }
  void train(const std::string& more) {
    const CliResult r = run(kTiny + more);
    ASSERT_EQ(r.code, 0) << r.err;
  }
  CliResult resume(const std::string& before = "") { return run(std::string(kTiny) + "--resume --epochs 4", before); }
  // All files and links below a folder, but for the log and the lock.
  static Content content(const fs::path& folder) {
    Content out;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().lexically_relative(folder).string();
      if (name == "train.log" || name == ".lock") continue;
      out[name] = entry.is_symlink()     ? "-> " + fs::read_symlink(entry.path()).string()
                  : entry.is_directory() ? ""
                                         : read_file(entry.path().string());
    }
    return out;
  }
  // This fails in one line that mentions `part`, and changes nothing.
  void expect_refused(const std::string& arguments, const std::string& part) {
    const Content before = content(file(""));
    const CliResult r = run(kTiny + arguments);
    EXPECT_EQ(r.code, 1) << part;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_MENTIONS(r.err, part);
    EXPECT_EQ(r.out.find("from the beginning"), std::string::npos) << r.out;
    EXPECT_TRUE(content(file("")) == before) << part << ": something has changed";
  }
  void expect_refused_resume(const std::string& part) { expect_refused("--resume --epochs 4", part); }
};

TEST_F(UnreadableRunTest, CheckpointsOnADiskThatIsNotMounted) {
  train("--epochs 2");
  const fs::path away = folder_ / "scratch";
  fs::rename(checkpoints(), away);
  fs::create_directory_symlink("/nowhere/r", checkpoints());
  const std::string told = "runs/r/checkpoints: is a link to /nowhere/r, which is not there; bring that back";
  expect_refused_resume(told);
  expect_refused("--overwrite --epochs 1", told);
  fs::remove(checkpoints());
  fs::create_directory_symlink("checkpoints", checkpoints());
  expect_refused_resume("runs/r/checkpoints: cannot read: Too many levels of symbolic links");
  fs::remove(checkpoints());
  write_file(checkpoints().string(), "");
  expect_refused_resume("runs/r/checkpoints: cannot read: Not a directory");
  fs::remove(checkpoints());
  fs::create_directory_symlink(away, checkpoints());
  const CliResult r = resume();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "/step-00000008: step 8, in epoch 3");
}

TEST_F(UnreadableRunTest, CheckpointsThatAreNoLongerThere) {
  train("--epochs 2");
  const fs::path away = folder_ / "scratch";
  fs::rename(checkpoints(), away);
  expect_refused_resume("runs/r/checkpoints: has no checkpoint, but this run has saved one before; bring its");
  fs::create_directories(checkpoints());  // where a disk is mounted at other times
  expect_refused_resume("runs/r/checkpoints: has no checkpoint, but this run has saved one before; bring its");
  fs::create_directory_symlink("step-00000008", checkpoints() / "last");
  expect_refused_resume("runs/r/checkpoints: has the link 'last', but no checkpoint");
  fs::remove_all(checkpoints());
  fs::rename(away, checkpoints());
  EXPECT_EQ(resume().code, 0);
}

// Earlier versions kept no record.
TEST_F(UnreadableRunTest, MetricsShowThatThereWereCheckpoints) {
  train("--epochs 2");
  fs::remove_all(checkpoints());
  fs::remove(file(".saved"));
  const std::string jsonl = file("metrics.jsonl").string(), csv = file("metrics.csv").string(), all = read_file(jsonl);
  expect_refused_resume("but runs/r/metrics.jsonl has epoch 2, step 8; bring");
  fs::remove(jsonl);
  expect_refused_resume("but runs/r/metrics.csv has epoch 2, step 8; bring");
  fs::remove(csv);
  const std::string summary = all.substr(all.find("{\"split\":\"summary\""));
  write_file(jsonl, summary);
  expect_refused_resume("but runs/r/metrics.jsonl has the results of a finished training; bring");
  EXPECT_EQ(run(std::string(kTiny) + "--overwrite --epochs 1").code, 0);
}

TEST_F(UnreadableRunTest, ARunThatWasKilledBeforeItsFirstCheckpointBegins) {
  train("--epochs 4");
  const std::string whole = read_file(file("exported/model.safetensors").string()),
                    all = read_file(file("metrics.jsonl").string()), first = all.substr(0, all.find('\n') + 1);
  fs::remove_all(checkpoints());
  fs::remove(file(".saved"));
  fs::remove(file("metrics.csv"));
  write_file(file("metrics.jsonl").string(), first + first.substr(0, 30));
  const CliResult r = resume();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "no checkpoint yet: starting from the beginning");
  EXPECT_EQ(read_file(file("exported/model.safetensors").string()), whole);
  EXPECT_TRUE(fs::exists(file(".saved")));
  // Checkpoints that were not due.
  train("--overwrite --epochs 2 --checkpoint-every 0");
  EXPECT_FALSE(fs::exists(file(".saved")));
  std::string metrics = read_file(file("metrics.jsonl").string());
  write_file(file("metrics.jsonl").string(), metrics.substr(0, metrics.find("{\"split\":\"summary\"")));
  EXPECT_MENTIONS(resume().out, "no checkpoint yet: starting from the beginning");
}

TEST_F(UnreadableRunTest, ACheckpointThatCannotBeReadIsNotTakenForADamagedOne) {
  train("--epochs 2");
  const fs::path newest = checkpoints() / "step-00000008", kept = folder_ / "kept";
  for (const char* name : {"state.json", "model.safetensors"}) {
    fs::rename(newest / name, kept);
    fs::create_symlink(name, newest / name);
    expect_refused_resume(std::string("runs/r/checkpoints/step-00000008/") + name +
                          ": cannot read: Too many levels of symbolic links");
    fs::remove(newest / name);
    fs::create_symlink("/nowhere/file", newest / name);
    expect_refused_resume("to resume from an earlier checkpoint, move runs/r/checkpoints/step-00000008 elsewhere");
    fs::remove(newest / name);
    fs::rename(kept, newest / name);
  }
  EXPECT_EQ(resume().code, 0);
}

TEST_F(UnreadableRunTest, MetricsThatCannotBeReadAreNotCut) {
  train("--epochs 2");
  for (const char* name : {"metrics.jsonl", "metrics.csv"}) {
    fs::rename(file(name), folder_ / "kept");
    fs::create_symlink("/nowhere/file", file(name));
    expect_refused_resume(std::string("runs/r/") + name + ": is a link to /nowhere/file, which is not there");
    fs::remove(file(name));
    fs::rename(folder_ / "kept", file(name));
  }
  const std::string before = read_file(file("metrics.jsonl").string());
  EXPECT_EQ(resume().code, 0);
  const std::string first = before.substr(0, before.find("{\"split\":\"test\""));
  EXPECT_TRUE(read_file(file("metrics.jsonl").string()).starts_with(first));
}

TEST_F(UnreadableRunTest, AListingThatFailsOnceLosesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "LeakSanitizer does not work under strace";
#endif
  if (std::system("strace -o /dev/null true 2>/dev/null") != 0) GTEST_SKIP() << "strace does not work here";
  train("--epochs 4");
  const std::string whole = read_file(file("exported/model.safetensors").string());
  train("--overwrite --epochs 2");
  const fs::path base = folder_ / "base";
  fs::rename(file(""), base);
  const auto copied = [&] {
    fs::remove_all(file(""));
    fs::copy(base, file(""), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  };
  const Content before = content(base);
  int failed = 0, unchanged = 0;
  for (int when = 1;; ++when) {
    copied();
    const CliResult r = resume(concat(
        "strace -f -qq -o /dev/null -P runs/r/checkpoints -e trace=openat -e inject=openat:error=ESTALE:when=", when));
    if (r.code == 0) break;
    ++failed;
    ASSERT_LT(failed, 50);
    EXPECT_EQ(r.code, 1);
    EXPECT_MENTIONS(r.err, "runs/r/checkpoints: cannot ");
    EXPECT_MENTIONS(r.err, "Stale file handle");
    EXPECT_EQ(r.out.find("from the beginning"), std::string::npos) << r.out;
    const Content now = content(file(""));
    unchanged += now == before;
    for (const auto& [path, bytes] : before)
      if (path.starts_with("checkpoints/step-")) {
        EXPECT_TRUE(now.contains(path) && now.at(path) == bytes) << path << " at call " << when;
      }
    const CliResult again = resume();
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(read_file(file("exported/model.safetensors").string()), whole);
  }
  EXPECT_GE(unchanged, 3) << "those of the start";
  EXPECT_GT(failed, unchanged) << "those of a save";
}

}  // namespace
}  // namespace ringtape
