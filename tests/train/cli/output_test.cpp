// Where results go: standard output that is full, closed or not read, links, pipes, limits of a process. Nothing is
// lost without a word.
#include "tests/support/cli_command.h"

namespace ringtape {
namespace {

class OutputTest : public CliTest {
 protected:
  static constexpr const char* kTiny =
      "train --train-size 44 --test-size 10 --val-size 4 --hidden 2 --batch-size 10 --threads 1 --epochs 1 --run r ";

  fs::path work() const { return folder_ / "work"; }
  std::string file(const std::string& name) const { return read_file((work() / name).string()); }
  // Runs a shell script there, in which `ringtape` is the binary.
  CliResult shell(const std::string& script) {
    write_file((folder_ / "script").string(), concat("ringtape() { ", RINGTAPE_BINARY, " \"$@\"; }\n", script, "\n"));
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const int status = std::system(concat("cd ", work().string(), " && env -u RINGTAPE_THREADS sh ",
                                          (folder_ / "script").string(), " >", out, " 2>", err, " </dev/null")
                                       .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }
  void expect_line(const CliResult& r, int code, const std::string& part) {
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_MENTIONS(r.err, part);
  }
};

TEST_F(OutputTest, AFullStandardOutputIsAnError) {
  ASSERT_EQ(run(kTiny).code, 0);
  const std::string told = "ringtape: error: standard output: cannot write: No space left on device";
  for (const char* command :
       {"list", "--help", "evaluate r --json", "data info shapes", "launch -n 2 --exec -- echo x"})
    expect_line(shell(concat("ringtape ", command, " >/dev/full")), 1, told);
  const std::string in_parts = "ringtape: error: standard output: cannot write: an earlier part of it is lost";
  expect_line(shell("ringtape doctor >/dev/full"), 1, in_parts);
  const CliResult trained = shell(concat("ringtape ", kTiny, "--overwrite >/dev/full"));
  expect_line(trained, 1, "ringtape: error: standard output: cannot write: ");
  EXPECT_TRUE(fs::exists(work() / "runs/r/exported/model.safetensors")) << "the training itself was done";
}

TEST_F(OutputTest, AReaderThatLeavesIsNone) {
  const CliResult r = shell("(sleep 0.3; ringtape list; echo $? >code) | true");
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(file("code"), "0\n");
}

TEST_F(OutputTest, ClosedStreamsGetNoFile) {
  for (const char* closed : {"<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"})
    for (const std::string before : {"", "launch -n 2 -- "}) {
      EXPECT_EQ(shell(concat("ringtape ", before, kTiny, "--overwrite ", closed)).code, 0) << before << closed;
      for (const char* name : {"config.toml", "metrics.jsonl", "metrics.csv", ".lock", "env.json"})
        EXPECT_EQ(file(std::string("runs/r/") + name).find("epoch 1/1"), std::string::npos) << name << closed;
      EXPECT_MENTIONS(file("runs/r/metrics.jsonl"), "summary");
    }
}

TEST_F(OutputTest, WhatIsNotAFileIsWrittenAndStays) {
  ASSERT_EQ(run(kTiny).code, 0);
  ASSERT_EQ(run("embed r --out plain.npy").code, 0);
  const std::string plain = file("plain.npy");
  ASSERT_EQ(shell("mkfifo pipe; cat pipe >got & ringtape embed r --out pipe && wait").code, 0);
  EXPECT_EQ(file("got"), plain);
  EXPECT_TRUE(fs::is_fifo(work() / "pipe"));
  EXPECT_EQ(shell("ringtape embed r --out /dev/null").code, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  ASSERT_EQ(shell(concat("ringtape embed r --json --out /dev/stdout | head -c ", plain.size(), " >got")).code, 0);
  EXPECT_EQ(file("got"), plain);
  // A link stays, and what it leads to is replaced.
  fs::create_directories(work() / "disk");
  write_file((work() / "disk/f.npy").string(), "");
  fs::create_symlink("disk/f.npy", work() / "link.npy");
  EXPECT_EQ(shell("ringtape embed r --out link.npy").code, 0);
  EXPECT_TRUE(fs::is_symlink(work() / "link.npy"));
  EXPECT_EQ(file("disk/f.npy"), plain);
  fs::remove_all(work() / "disk");
  expect_line(shell("ringtape embed r --out link.npy"), 1, "is a link to disk/f.npy, which is not there");
  expect_line(shell("ringtape embed r --out runs"), 1, "runs: cannot write: Is a directory");
}

TEST_F(OutputTest, WhatIsReadIsNotOverwritten) {
  ASSERT_EQ(run(kTiny).code, 0);
  const std::string weights = "runs/r/exported/model.safetensors", before = file(weights);
  expect_line(run("embed r --out " + weights), 2, "would replace the weights that embed reads");
  expect_line(run("embed r --out f.npy --labels f.npy"), 2, "--labels f.npy: is also --out");
  expect_line(run("evaluate r --logits ./" + weights), 2, "would replace the weights that evaluate reads");
  expect_line(run("export r --out " + weights), 2, "would replace the weights that export reads");
  write_file((work() / "notes.md").string(), "mine\n");
  expect_line(run("export r --out notes.safetensors"), 2, "notes.md: is in the way");
  EXPECT_EQ(file("notes.md"), "mine\n");
  EXPECT_EQ(file(weights), before);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run("export r --out own.safetensors").code, 0);
}

TEST_F(OutputTest, ATraceThatCannotBeWrittenIsToldAtTheStart) {
  const CliResult r = run(std::string(kTiny) + "--trace missing/t --trace-step 3");
  expect_line(r, 1, "missing/t.json: cannot write: No such file or directory");
  EXPECT_EQ(r.out.find("epoch 1"), std::string::npos) << r.out;
}

TEST_F(OutputTest, LimitsOfAProcessAreNamed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs a larger stack before main() begins";
#endif
  expect_line(shell(concat("ulimit -f 8; ringtape ", kTiny, "--hidden 64")), 1, "cannot write: File too large");
  expect_line(shell(concat("ulimit -s 256; ringtape ", kTiny)), 1, "a stack may have 256 KiB, 1024 are needed");
  const std::string kept = file("runs/r/config.toml");
  expect_line(shell(concat("ulimit -n 9; ringtape ", kTiny, "--overwrite")), 1, "not replaced: 12 more file");
  EXPECT_EQ(file("runs/r/config.toml"), kept);
  EXPECT_EQ(shell(concat("ulimit -S -s 64; ringtape ", kTiny, "--overwrite --threads 2")).code, 0);
}

TEST_F(OutputTest, RunsWithoutANameThatBeginTogetherGetTwo) {
  const std::string unnamed = std::string(kTiny).replace(std::string(kTiny).find("--run r"), 7, "");
  const CliResult r = shell(concat("for i in 1 2 3 4; do ringtape ", unnamed,
                                   "& all=\"$all $!\"; done\n"
                                   "for p in $all; do wait $p || exit 1; done; ls -d runs/mlp-shapes-20* | wc -l"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.ends_with("\n4\n")) << r.out;
}

TEST_F(OutputTest, AMisspeltVariableIsNamed) {
  const CliResult r = run("list", "RINGTAPE_THREDS=2 RINGTAPE_OF_SOMEBODY_ELSE=1");
  expect_line(r, 0, "RINGTAPE_THREDS, which means nothing here; did you mean RINGTAPE_THREADS?");
}

}  // namespace
}  // namespace ringtape
