// Balanced accuracy, and validations that are judged by it or by their loss.
#include "train/evaluation/class_recall.h"

#include <cmath>

#include "autograd/create.h"
#include "core/part.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/jobs.h"
#include "tests/support/support.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

using namespace test;

const std::vector<int64_t> kLabels = {0, 0, 0, 0, 3, 1, 0, 1, 3}, kRanks = {0, 1, 0, 0, 0, 2, 0, 0, 4};

ClassRecall::Summary recall(comm::ProcessGroup& group, const std::vector<int64_t>& labels) {
  ClassRecall own(5);
  for (int64_t begin = 0; begin < int64_t(labels.size()); begin += 4) {
    const int64_t all = std::min<int64_t>(int64_t(labels.size()) - begin, 4);
    const Part part = part_of(all, group.size(), group.rank());
    const auto rows = [&](const std::vector<int64_t>& x) {
      return from_host(std::vector<int64_t>(x.begin() + begin + part.begin, x.begin() + begin + part.end),
                       {part.size()});
    };
    own.add(rows(kRanks), rows(labels));
  }
  return own.of_all(group);
}

// Classes 2 and 4 have no images, so they are left out.
TEST(ClassRecall, IsTheMeanOfTheClassesThatHaveImages) {
  const double expected = (4.0 / 5 + 1.0 / 2 + 1.0 / 2) / 3;
  const ClassRecall::Summary alone = recall(comm::alone(), kLabels);
  EXPECT_DOUBLE_EQ(alone.mean, expected);
  EXPECT_TRUE(alone.uneven);
  for (const int ranks : {2, 3, 5})
    EXPECT_EQ(comm::test::on_group(comm::test::kWorlds[0], ranks,
                                   [&](comm::ProcessGroup& group) {
                                     const ClassRecall::Summary found = recall(group, kLabels);
                                     EXPECT_EQ(found.mean, alone.mean);
                                     EXPECT_TRUE(found.uneven);
                                   }),
              "");
  EXPECT_FALSE(recall(comm::alone(), {0, 0, 1, 1, 2, 2, 0, 1, 0}).uneven);  // 4, 3, 2
  EXPECT_TRUE(std::isnan(ClassRecall(3).of_all(comm::alone()).mean));
}

class BestBy : public JobTest {
 protected:
  std::vector<Json> validations(const std::string& run) const {
    std::vector<Json> out;
    std::ifstream file(run_folder(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (Json m = parse_json(line); m["split"] == "val") out.push_back(std::move(m));
    return out;
  }
};

const std::string kShort =
    "ringtape train --train-size 300 --test-size 50 --val-size 60 --batch-size 20 --hidden 16 --epochs 8 --lr 0.01 "
    "--threads 1 --device cpu --workers 0 --keep 1 ";

TEST_F(BestBy, ChoosesTheCheckpointOnAllRanks) {
  for (const std::string by : {"top1", "loss", "balanced"})
    for (const char* way : {"", "--devices 3 ", "--devices 2 --shares 4 "}) {
      ASSERT_EQ(run(concat(kShort, way, "--best-by ", by, " --run r --overwrite")), 0) << log();
      const std::string key = by == "balanced" ? "balanced_accuracy" : by;
      const double sign = by == "loss" ? -1 : 1;
      int64_t best = 0;
      double most = -1e300;
      for (const Json& m : validations("r"))
        if (const double score = sign * m[key].get<double>(); score > most)
          most = score, best = m["step"].get<int64_t>();
      EXPECT_EQ(fs::read_symlink(run_folder("r") / "checkpoints/best"),
                concat("step-", std::string(8 - std::to_string(best).size(), '0'), best))
          << by << way;
    }
}

TEST_F(BestBy, PatienceFollowsItAndIsResumed) {
  const std::string base = kShort + "--epochs 9 --best-by loss --patience 2 --min-delta 1 --lr 1e-5 ";
  ASSERT_EQ(run(base + "--run whole"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --patience 2 after epoch 3 of 9");
  EXPECT_MENTIONS(log(), "no validation was better than that of epoch 1 (loss ");
  ASSERT_EQ(run(base + "--max-steps 18 --run parts"), 0) << log();
  EXPECT_EQ(run("ringtape train --resume --run parts --best-by top1 --max-steps 0"), 2);
  EXPECT_MENTIONS(log(), "--best-by top1");
  ASSERT_EQ(run("ringtape train --resume --run parts --max-steps 0"), 0) << log();
  EXPECT_TRUE(bytes("parts") == bytes("whole"));
  ASSERT_EQ(run(kShort + "--best-by balanced --patience 1 --min-delta 1 --run balanced"), 0) << log();
  EXPECT_MENTIONS(log(), "than that of epoch 1 (balanced ");
  EXPECT_EQ(run(kShort + "--best-by loss --val-size 0 --run none"), 2);
  EXPECT_MENTIONS(log(), "--best-by loss: needs validations; leave out --val-size 0");
}

}  // namespace
}  // namespace ringtape
