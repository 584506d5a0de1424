// Which rank a label has among the scores.
#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/support.h"
#include "train/evaluation/metrics.h"

namespace ringtape {
namespace {

TEST(Tally, RanksLabelsOfTwoDtypes) {
  const Tensor logits = from_host<float>({1, 3, 2, 5, 4, 6}, {2, 3}), labels = from_host<int64_t>({2, 0}, {2});
  for (const DType dtype : {DType::i64, DType::i32})
    EXPECT_EQ(test::values(ranks_of(logits, cast(labels, dtype))), (std::vector<double>{1, 1}));
}

TEST(Tally, RefusesOtherShapesAndDtypes) {
  const Tensor logits = zeros({4, 3});
  const auto refused = [&](const Tensor& x, const Tensor& labels) {
    return test::message_of<Error>([&] { Tally().add(zeros({}), x, labels); });
  };
  EXPECT_MENTIONS(refused(logits, arange(3)), "expected logits (B, classes) and labels (B), got (4, 3) and (3,)");
  EXPECT_MENTIONS(refused(zeros({4}), arange(4)), "got (4,) and (4,)");
  EXPECT_MENTIONS(refused(logits, zeros({4})), "labels of i64 or i32, got f32");
  EXPECT_MENTIONS(refused(arange(4), arange(4)), "got (4,) and (4,)");
}

}  // namespace
}  // namespace ringtape
