// ringtape find-lr: the test of learning rates, and the command.
#include <set>

#include "tests/support/cli_command.h"
#include "train/io/json.h"
#include "train/loop/lr_range.h"

namespace ringtape {
namespace {

// numpy.argmin(numpy.gradient(losses[10:-1])) + 10, as Lightning suggests.
TEST(FindLr, SuggestsTheSteepestPoint) {
  std::vector<LrPoint> points(12);
  EXPECT_FALSE(steepest(points));
  points.resize(13);
  EXPECT_EQ(*steepest(points), 10u);
  points.clear();
  for (int i = 0; i < 60; ++i) points.push_back({1, 0, i < 30 ? 5 : i < 40 ? 5 - 0.1 * (i - 30) * (i - 30) : 1});
  EXPECT_EQ(*steepest(points), 38u);
  points[5].smoothed = -100, points.back().smoothed = -100;
  EXPECT_EQ(*steepest(points), 38u);
}

using FindLrTest = CliTest;

const std::string kFind =
    "find-lr --data shapes --train-size 600 --val-size 100 --test-size 50 --model mlp "
    "--hidden 16 --batch-size 50 --threads 1 --optimizer sgd --steps 60 --from 1e-5 ";

TEST_F(FindLrTest, WritesAPictureAndATableAndNothingElse) {
  const CliResult r = run(kFind + "--to 1000");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "where the loss diverged");
  EXPECT_MENTIONS(r.out, "found  --lr ");
  EXPECT_MENTIONS(r.out, "saved  find-lr.svg, find-lr.csv");
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder_ / "work")) files.insert(entry.path().filename().string());
  EXPECT_EQ(files, (std::set<std::string>{"find-lr.csv", "find-lr.svg"}));
  const std::string table = read_file((folder_ / "work/find-lr.csv").string());
  EXPECT_TRUE(table.starts_with("lr,loss,smoothed\n1e-05,")) << table;
  EXPECT_LT(std::count(table.begin(), table.end(), '\n'), 61);
  EXPECT_MENTIONS(read_file((folder_ / "work/find-lr.svg").string()), "learning rate</text>");
  ASSERT_EQ(run(kFind + "--to 1000 --svg 2.svg --csv 2.csv --workers 2").code, 0);
  EXPECT_EQ(read_file((folder_ / "work/2.csv").string()), table);
}

TEST_F(FindLrTest, SpeaksJsonAlsoOfMethods) {
  for (const char* more : {"", "--method simsiam --preset corrected --weight-decay 0 "}) {
    const CliResult r = run(kFind + "--to 1 --json " + more);
    ASSERT_EQ(r.code, 0) << r.err;
    const Json line = parse_json(r.out);
    EXPECT_EQ(line["steps"], 60) << r.out;
    EXPECT_GT(line["lr"].get<double>(), 1e-5);
    EXPECT_LT(line["lr"].get<double>(), 1);
  }
  const std::string few = "find-lr --data shapes --train-size 600 --model mlp --steps 12 ";
  EXPECT_MENTIONS(run(few).out, "found  none: too few steps");
  EXPECT_TRUE(parse_json(run(few + "--json").out)["lr"].is_null());
}

TEST_F(FindLrTest, RefusesWhatItCannotDo) {
  expect_error("find-lr --from 1 --to 0.1", 2, "--from 1: must be below --to 0.1");
  expect_error("find-lr --from 0", 2, "--from: expected a number from");
  expect_error("find-lr --devices 2", 2, "find-lr: uses one rank");
  expect_error("find-lr --svg a --csv a", 2, "--csv a: is also --svg");
  expect_error("find-lr --run r", 2, "unknown flag --run");
}

}  // namespace
}  // namespace ringtape
