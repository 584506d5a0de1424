// The help texts of the ringtape binary, how it reads a command line, and its answers to unknown names.
#include <gtest/gtest.h>
#include <pty.h>

#include <csignal>
#include <set>
#include <sstream>

#include "tests/support/cli_command.h"
#include "tests/support/support.h"
#include "train/io/json.h"
#include "train/settings/aliases.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

const std::vector<std::string> kCommands = {
    "train",     "pretrain",    "evaluate",      "predict", "embed",      "export",     "compare",
    "runs",      "find-lr",     "launch",        "store",   "bench step", "bench tune", "bench collectives",
    "data info", "data verify", "data download", "doctor",  "list"};

size_t longest_line(const std::string& text) {
  std::istringstream in(text);
  size_t longest = 0;
  for (std::string line; std::getline(in, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST_F(CliTest, HelpIsAskedForInSeveralWays) {
  for (const std::string& command : kCommands) {
    const CliResult behind = run(command + " --help"), before = run("help " + command);
    EXPECT_EQ(before.code, 0) << command;
    EXPECT_EQ(before.out, behind.out) << command;
    EXPECT_MENTIONS(before.out, "Usage: ringtape " + command);
  }
  EXPECT_EQ(run("help bench").out, run("bench --help").out);
  expect_error("help bench stpe", 2, "did you mean step?");
  EXPECT_EQ(run("version").out, run("--version").out);
  EXPECT_EQ(run("version").code, 0);
}

// Those that a run has, by its recipe.
TEST_F(CliTest, HelpOfPretrainHasTheDefaultsOfTheRecipe) {
  const auto fallback = [&](const std::string& flags, const std::string& name) {
    const std::string text = run("pretrain --help-all " + flags, "COLUMNS=100").out;
    const size_t at = text.find("\n  --" + name + " "), end = text.find("\n  --", at + 1);
    const std::string of_flag = text.substr(at, end - at);
    const size_t open = of_flag.rfind('[');
    return open == of_flag.npos ? "none" : of_flag.substr(open + 1, of_flag.rfind(']') - open - 1);
  };
  EXPECT_EQ(fallback("", "epochs"), "200");
  EXPECT_EQ(fallback("", "batch-size"), "512");
  EXPECT_EQ(fallback("", "model"), "resnet18");
  EXPECT_EQ(fallback("--preset seed000", "batch-size"), "512");
  for (const std::string name : {"epochs", "optimizer", "base-lr", "warmup-epochs"}) {
    const CliResult r =
        run("pretrain --method byol --run r --overwrite --data shapes --train-size 600 --test-size 20 --width 2 "
            "--limit-train-batches 1 --max-steps 1");
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string config = read_file((folder_ / "work/runs/r/config.toml").string());
    const std::string expected = fallback("--method byol", name);
    EXPECT_TRUE(config.find(concat("\n", name, " = ", expected)) != config.npos ||
                config.find(concat("\n", name, " = \"", expected, '"')) != config.npos)
        << name << ": " << expected;
  }
}

const std::string kSmall = "train --train-size 100 --test-size 20 --epochs 1 --hidden 4 ";

// The images may be in a folder of the run's name.
TEST_F(CliTest, ARunIsFoundBesideAFolderOfItsName) {
  ASSERT_EQ(run(kSmall + "--run photos").code, 0);
  std::filesystem::create_directories(folder_ / "work/photos/cats");
  const CliResult found = run("evaluate photos --json");
  EXPECT_EQ(found.code, 0) << found.err;
  std::filesystem::create_directories(folder_ / "work/others");
  EXPECT_MENTIONS(run("evaluate others").err, "others: not a run: it has no config.toml");
}

TEST_F(CliTest, AListThatIsGivenTwiceAddsUp) {
  const CliResult r = run(kSmall + "--run l --freeze 1.weight --freeze=1.bias --seed 3 --seed 4");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string config = read_file((folder_ / "work/runs/l/config.toml").string());
  EXPECT_MENTIONS(config, "freeze = \"1.weight,1.bias\"");
  EXPECT_MENTIONS(config, "seed = 4\n");
}

TEST_F(CliTest, HelpIsAsWideAsTheTerminal) {
  for (const size_t columns : {60, 80, 100}) {
    const std::string as_wide = concat("COLUMNS=", columns);
    EXPECT_LE(longest_line(run("--help", as_wide).out), columns);
    for (const std::string& command : kCommands)
      EXPECT_LE(longest_line(run(command + " --help", as_wide).out), columns) << command;
  }
  EXPECT_GT(longest_line(run("train --help", "COLUMNS=100").out), 90u);
  EXPECT_LE(longest_line(run("train --help", "-u COLUMNS").out), 80u);

  int terminal = -1;
  winsize size{40, 70, 0, 0};
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::unsetenv("COLUMNS");
    ::execl(RINGTAPE_BINARY, "ringtape", "train", "--help", nullptr);
    ::_exit(98);
  }
  ASSERT_GT(child, 0);
  std::string shown;
  char part[4096];
  for (ssize_t n; (n = ::read(terminal, part, sizeof part)) > 0;) shown.append(part, size_t(n));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << shown;
  std::erase(shown, '\r');
  EXPECT_MENTIONS(shown, "--batch-size N");
  EXPECT_LE(longest_line(shown), 70u);
  EXPECT_GT(longest_line(shown), 60u);
}

TEST_F(CliTest, TheBarTellsWhatIsLeftOfAllEpochs) {
  int terminal = -1;
  winsize size{40, 120, 0, 0};
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C", 1);
    if (::chdir((folder_ / "work").c_str()) != 0) ::_exit(97);
    ::execl(RINGTAPE_BINARY, "ringtape", "train", "--train-size", "20000", "--test-size", "10", "--batch-size", "1",
            "--epochs", "1000", "--run", "a", nullptr);
    ::_exit(98);
  }
  ASSERT_GT(child, 0);
  std::string shown;
  char part[4096];
  for (ssize_t n; shown.find(" left in total]") == std::string::npos && shown.find("epoch 2/") == std::string::npos &&
                  (n = ::read(terminal, part, sizeof part)) > 0;)
    shown.append(part, size_t(n));
  ::kill(child, SIGKILL);
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  EXPECT_MENTIONS(shown, " left in total]");
  EXPECT_LACKS(shown, "nan");
}

TEST_F(CliTest, SummariesStandInOneColumn) {
  std::istringstream lines(run("--help", "COLUMNS=100").out);
  std::set<size_t> columns;
  for (std::string line; std::getline(lines, line);)
    for (const std::string& command : kCommands)
      if (const std::string begin = "  " + command + "  "; line.starts_with(begin))
        columns.insert(line.find_first_not_of(' ', begin.size()));
  EXPECT_EQ(columns.size(), 1u);
}

TEST_F(CliTest, TheFlagsUsedMostFitOnAScreen) {
  for (const std::string command : {"train", "pretrain"}) {
    const std::string usual = run(command + " --help", "COLUMNS=80").out, all = run(command + " --help-all").out;
    EXPECT_LE(std::count(usual.begin(), usual.end(), '\n'), 50) << usual;
    for (const char* flag : {"--model", "--data-dir", "--epochs", "--batch-size", "--preset", "--devices", "--run"})
      EXPECT_MENTIONS(usual, flag);
    EXPECT_MENTIONS(usual, "`ringtape " + command + " --help-all` shows all flags");
    EXPECT_LACKS(usual, "--patience");
    for (const char* word : {"--patience", "early stopping", "sweep"}) EXPECT_MENTIONS(all, word);
  }
  EXPECT_MENTIONS(run("train --help-all").out, "fine-tune");
  EXPECT_MENTIONS(run("train --help --optimizer sgd").out, "--nesterov");
  EXPECT_LACKS(run("train --help").out, "--nesterov");
}

// A list for a flag of one value.
TEST_F(CliTest, AListNamesTheSweep) {
  expect_error("train --lr 1e-3,3e-3", 2,
               "--lr: expected a number of at least 0, got '1e-3,3e-3'; for several values: ringtape compare --vary "
               "lr=1e-3,3e-3");
  expect_error("train --optimizer sgd,adam", 2, "ringtape compare --vary optimizer=sgd,adam");
  expect_error("train --seed 2,4", 2, "ringtape compare --seeds 2,4");
  expect_error("train --strategy dp,ddp", 2, "ringtape compare --strategies dp,ddp");
}

TEST_F(CliTest, TrainStartsFromARecipe) {
  const CliResult r =
      run("train --preset fine_tune --data shapes --train-size 300 --test-size 20 --width 2 --batch-size 32 "
          "--max-steps 1 --run r");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string config = read_file((folder_ / "work/runs/r/config.toml").string());
  for (const char* line : {"layer-decay = 0.9\n", "head-lr = 0.1\n", "batch-size = 32\n", "data = \"shapes\"\n"})
    EXPECT_MENTIONS(config, line);
  fs::remove_all(folder_ / "work/runs");
  expect_error("train --preset finetune", 2, "--preset: unknown preset 'finetune'; did you mean fine_tune?");
  expect_error("train --preset seed000", 2, "--preset seed000: a recipe of ringtape pretrain; available here: ");
  expect_error("pretrain --method simclr --preset fine_tune", 2,
               "--preset fine_tune: a recipe of ringtape train; available here: corrected");
}

TEST_F(CliTest, ListsEveryKind) {
  const CliResult all = run("list --json"), help = run("list --help");
  ASSERT_EQ(all.code, 0) << all.err;
  const Json kinds = parse_json(all.out);
  for (const auto& [kind, names] : kinds.items()) {
    EXPECT_MENTIONS(help.out, kind);
    EXPECT_FALSE(names.empty()) << kind;
    EXPECT_EQ(parse_json(run("list --json " + kind).out)[kind], names);
  }
  const auto has = [&](const char* kind, const char* name) {
    return std::find(kinds[kind].begin(), kinds[kind].end(), name) != kinds[kind].end();
  };
  EXPECT_TRUE(has("presets", "corrected"));
  EXPECT_TRUE(has("strategies", "ddp2"));
  EXPECT_TRUE(has("transports", "shm"));
  EXPECT_TRUE(has("methods", "byol"));
  EXPECT_TRUE(has("presets", "fine_tune"));
  EXPECT_MENTIONS(run("list presets").out, "pretrain: lightly's CIFAR-10 benchmark as of January 2022");
  EXPECT_MENTIONS(run("list presets").out, "train: Fine-tuning of all layers");
}

TEST_F(CliTest, NamesEachCommandOnce) {
  expect_error(
      "frobnicate", 2,
      "available: train pretrain find-lr evaluate predict embed serve export compare runs view launch store bench "
      "data doctor list");
}

TEST_F(CliTest, KnowsWhatOthersCallAFlag) {
  for (const auto& [typed, meant] : std::vector<std::pair<std::string, std::string>>{
           {"--learning-rate 0.1", "--learning-rate; did you mean --lr?"},
           {"--learning_rate=0.1", "--learning-rate; did you mean --lr?"},
           {"--wd 1e-4", "--wd; did you mean --weight-decay?"},
           {"--amp", "--amp; did you mean --precision bf16?"},
           {"--gpus 2", "--gpus; did you mean --devices?"},
           {"-b 32", "-b; did you mean --batch-size?"},
           {"--num-workers 4", "--num-workers; did you mean --workers?"},
           {"--max-epochs 4", "--max-epochs; did you mean --epochs?"},
           {"--sched cosine", "--sched; did you mean --schedule?"},
           {"--opt sgd", "--opt; did you mean --optimizer?"},
           {"--num-steps 100", "--num-steps; did you mean --max-steps?"},
           {"--early-stopping 3", "--early-stopping; did you mean --patience?"},
           {"--mixup-alpha 0.2", "--mixup-alpha; did you mean --mixup?"},
           {"--aa rand-m9", "--aa; did you mean --policy randaugment or --policy trivialaugment?"},
           {"--drop-path-rate 0.1", "--drop-path-rate; did you mean --drop-path?"},
           {"--overfit-batches 2", "--overfit-batches: not supported"}})
    expect_error("train " + typed, 2, "unknown flag " + meant);
  // simclr has no labels to smooth.
  expect_error("pretrain --method simclr --smoothing 0.1", 2, "unknown flag --smoothing");
  EXPECT_LACKS(run("pretrain --method simclr --smoothing 0.1").err, "--label-smoothing");
  write_file((folder_ / "c.toml").string(), "learning_rate = 3\n");
  expect_error("train --config " + (folder_ / "c.toml").string(), 2, "unknown key 'learning_rate'; did you mean lr?");
}

TEST(Aliases, LeadToFlagsThatThereAre) {
  std::set<std::string_view> flags, seen;
  for (const Option& option : train_options()) flags.insert(option.name);
  for (const Alias& alias : aliases()) {
    EXPECT_TRUE(alias.flag.empty() ? !alias.hint.empty() : flags.contains(alias.flag)) << alias.flag;
    for (const std::string_view name : alias.names) {
      EXPECT_FALSE(flags.contains(name)) << name << " is a flag itself";
      EXPECT_TRUE(seen.insert(name).second) << name << " twice";
    }
  }
}

}  // namespace
}  // namespace ringtape
