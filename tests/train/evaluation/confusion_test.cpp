// Which classes are taken for which: counts, shares and tables, and `evaluate --per-class --confusion`.
#include "train/evaluation/confusion.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/cli_command.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor matrix(const std::vector<double>& x, int64_t columns) {
  return from_host(x, {int64_t(x.size()) / columns, columns});
}
Tensor labels(const std::vector<int64_t>& x) { return from_host(x, {int64_t(x.size())}); }

TEST(Confusion, CountsTheFirstOfTheLargestOutputs) {
  const Tensor logits = matrix({3, 1, 2,     // 0
                                1, 1, 0,     // 0 of two
                                kNan, 0, 2,  // 2: a NaN beats nothing
                                0, 5, 1,     // 1
                                -1, -3, -2},
                               3);
  const Confusion c(logits, labels({0, 1, 2, 0, 0}), {"cat", "dog"});
  EXPECT_EQ(c.json().text(), "[[2,1,0],[1,0,0],[0,0,1]]");
  const Confusion::Class cat = c.of(0), dog = c.of(1);
  EXPECT_EQ(std::tuple(cat.images, cat.taken, cat.right), std::tuple(3, 3, 2));
  EXPECT_DOUBLE_EQ(cat.recall(), 2. / 3);
  EXPECT_DOUBLE_EQ(cat.precision(), 2. / 3);
  EXPECT_EQ(std::tuple(dog.recall(), dog.precision(), dog.f1()), std::tuple(0, 0, 0));
  EXPECT_EQ(c.per_class_text(),
            "class  images    recall  precision        F1\n"
            "cat         3   66.67 %    66.67 %   66.67 %\n"
            "dog         1    0.00 %     0.00 %    0.00 %\n"
            "2           1  100.00 %   100.00 %  100.00 %\n");
}

TEST(Confusion, SharesOfNothingAreNone) {
  const Confusion c(matrix({0, 1, 0}, 3), labels({1}), {"a", "b", "c"});
  EXPECT_TRUE(std::isnan(c.of(0).recall()) && std::isnan(c.of(0).precision()) && std::isnan(c.of(0).f1()));
  EXPECT_MENTIONS(c.per_class_json().text(),
                  R"({"class":"a","images":0,"taken":0,"recall":null,"precision":null,"f1":null})");
  EXPECT_MENTIONS(c.per_class_text(), "a           0         -          -         -\n");
  EXPECT_EQ(Confusion(Tensor({0, 2}), labels({}), {}).json().text(), "[[0,0],[0,0]]");
  EXPECT_THROW(Confusion(Tensor({2, 2}), labels({1}), {}), ShapeError);
}

TEST(Confusion, ManyClassesShowTheMistakes) {
  const int64_t c = Confusion::kMaxShown + 1;
  Tensor logits = zeros({6, c});
  for (const auto& [row, prediction] : {std::pair{0, 20}, {1, 3}, {2, 3}, {3, 3}, {4, 20}, {5, 5}})
    logits.data<float>()[row * c + prediction] = 1;
  const Confusion many(logits, labels({7, 7, 7, 7, 2, 5}), {"zéro"});
  EXPECT_EQ(many.text(),
            "most frequent mistakes  taken for  images  of the class\n"
            "7                               3       3       75.00 %\n"
            "2                              20       1      100.00 %\n"
            "7                              20       1       25.00 %\n");
  const Confusion few(slice(logits, 1, 0, 8), labels({7, 7, 7, 7, 2, 5}), {"zéro", "a\nb"});
  EXPECT_MENTIONS(few.text(), "class \\ taken for  zéro  a b  2  3  4  5  6  7\n");
  EXPECT_MENTIONS(few.text(), "7                     1    0  0  3  0  0  0  0\n");
}

TEST_F(CliTest, EvaluateSaysWhichClassesAreTakenForWhich) {
  ASSERT_EQ(run("train --data shapes --train-size 300 --test-size 200 --model mlp --epochs 1 --run r").code, 0);
  const CliResult found = run("evaluate r --json --per-class --confusion");
  ASSERT_EQ(found.code, 0) << found.err;
  const Json line = parse_json(found.out);
  const Json::List& classes = line["per_class"].parts();
  int64_t images = 0, right = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    int64_t of_class = 0;
    for (const Json& count : line["confusion"][i]) of_class += count.get<int64_t>();
    EXPECT_EQ(classes[i]["images"], of_class);
    images += of_class, right += line["confusion"][i][i].get<int64_t>();
  }
  EXPECT_EQ(images, 200);
  EXPECT_DOUBLE_EQ(double(right) / 200, line["top1"].get<double>());
  EXPECT_FALSE(parse_json(run("evaluate r --json").out).contains("confusion"));
  const CliResult text = run("evaluate r --per-class --confusion --limit-eval-batches 1");
  EXPECT_MENTIONS(text.out, "\nclass ");
  EXPECT_MENTIONS(text.out, "class \\ taken for");
  EXPECT_MENTIONS(run("evaluate r --protocol knn --confusion").err, "--confusion: needs --protocol test");
}

}  // namespace
}  // namespace ringtape
