// `ringtape runs`: finished, unfinished and damaged runs, their results and the settings in which they differ.
#include <sstream>

#include "tests/support/view_runs.h"

namespace ringtape {
namespace {

class RunsTest : public ViewTest {
 protected:
  // Two that differ in two settings, one that was cut off, one without settings.
  void SetUp() override {
    ViewTest::SetUp();
    train("good", "--lr 0.01");
    train("bad", "--lr 1e-6 --flip");
    train("cut");
    std::string lines = read_file(at("runs/cut/metrics.jsonl"));
    write_file(at("runs/cut/metrics.jsonl"), lines.substr(0, lines.find("{\"split\":\"val\"")));
    fs::create_directories(at("runs/broken"));
    write_file(at("runs/broken/config.toml"), "lr = = 1\n");
  }
  // The words of each line.
  std::vector<std::vector<std::string>> table(const std::string& flags) {
    const CliResult r = run("runs " + flags);
    EXPECT_EQ(r.code, 0) << r.err;
    std::vector<std::vector<std::string>> out;
    std::istringstream lines(r.out);
    for (std::string line, word; std::getline(lines, line);) {
      out.emplace_back();
      std::istringstream words(line);
      while (std::getline(words, word, ',')) out.back().push_back(word);
    }
    return out;
  }
  std::vector<std::string> names(const std::string& flags) {
    std::vector<std::string> out;
    for (const auto& line : table(flags + " --csv"))
      if (line[0] != "name") out.push_back(line[0]);
    return out;
  }
};

using Names = std::vector<std::string>;

TEST_F(RunsTest, ListsResultsAndTheSettingsThatDiffer) {
  const CliResult shown = run("runs");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const std::string head = shown.out.substr(0, shown.out.find('\n'));
  std::istringstream words(head);
  Names heads;
  for (std::string word; words >> word;) heads.push_back(word);
  EXPECT_EQ(heads, (Names{"name", "date", "state", "epoch", "loss", "top-1", "validation", "time", "flip", "lr"}));
  for (const auto& [name, state] : {std::pair("good", "finished"), {"cut", "unfinished"}, {"broken", "damaged"}}) {
    const size_t at = shown.out.find(concat("\n", name, " "));
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_MENTIONS(shown.out.substr(at + 1, shown.out.find('\n', at + 1) - at - 1), state);
  }
  EXPECT_MENTIONS(shown.out, " %  ");
  // Accuracies as fractions, those of the run's own metrics.
  const auto rows = table("--csv --sort lr");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[1][0], "bad");
  EXPECT_EQ(rows[1][8], "true");
  EXPECT_EQ(rows[1][9], "1e-06");
  const std::string metrics = read_file(at("runs/bad/metrics.jsonl"));
  const Json summary = parse_json(metrics.substr(metrics.rfind('\n', metrics.size() - 2) + 1));
  EXPECT_EQ(std::stod(rows[1][5]), summary["top1"].get<double>());
  EXPECT_EQ(std::stod(rows[1][4]), summary["loss"].get<double>());
  EXPECT_EQ(run("runs runs/").out, shown.out);
}

TEST_F(RunsTest, AreSortedByAnyColumn) {
  EXPECT_EQ(names("--sort lr"), (Names{"bad", "cut", "good", "broken"}));  // what has no value is last
  EXPECT_EQ(names("--sort lr --reverse"), (Names{"broken", "good", "cut", "bad"}));
  EXPECT_EQ(names("--sort name"), (Names{"bad", "broken", "cut", "good"}));
  const auto rows = table("--csv --sort top-1");
  EXPECT_GE(std::stod(rows[1][5]), std::stod(rows[2][5]));
  EXPECT_EQ(rows[3][5], "");
  const CliResult r = run("runs --sort tpo-1");
  EXPECT_EQ(r.code, 2);
  EXPECT_MENTIONS(r.err, "--sort: unknown column 'tpo-1'; did you mean top-1?");
}

TEST_F(RunsTest, SettingsThatOneModelAloneHasAreNoDifference) {
  ASSERT_EQ(run("train --train-size 96 --test-size 24 --model resnet18 --width 2 --max-steps 1 --run deep").code, 0);
  const std::string head = run("runs").out.substr(0, run("runs").out.find('\n'));
  EXPECT_MENTIONS(head, "model");
  for (const char* own : {"width", "hidden", "stem"}) EXPECT_LACKS(head, own);
}

TEST_F(CliTest, WithoutRunsThereIsALine) {
  for (const char* folder : {"", "empty"}) {
    if (*folder) fs::create_directories(folder_ / "work/empty");
    const CliResult r = run(concat("runs ", folder));
    EXPECT_EQ(r.code, 0);
    EXPECT_EQ(r.out, "");
    EXPECT_MENTIONS(r.err, concat(*folder ? "empty" : "runs", ": there are no runs; `ringtape train` makes one"));
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    fs::remove_all(folder_ / "work/empty");
  }
  expect_error("runs nowhere", 1, "nowhere: there is no such folder");
}

}  // namespace
}  // namespace ringtape
