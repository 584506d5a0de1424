// The order in which the shares of a batch are added.
#include "comm/parallel/share_tree.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/create.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using ringtape::test::values;

// The definition, on numbers.
float tree(const std::vector<float>& x, Part node) {
  if (node.size() == 1) return x[size_t(node.begin)];
  int64_t half = 1;
  while (2 * half < node.size()) half *= 2;
  return tree(x, {node.begin, node.begin + half}) + tree(x, {node.begin + half, node.end});
}

std::vector<float> some(int64_t n) {
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(float(std::sin(double(i + 1)) * std::pow(7.3, double(i * 5 % 7))));
  return out;
}

Tensor of(float x) { return from_host(std::vector<float>{x}, {1}); }

TEST(ShareTree, NodesOfRanksAreTheLargestOnes) {
  for (int64_t shares = 1; shares <= 33; ++shares)
    for (int64_t begin = 0; begin < shares; ++begin)
      for (int64_t end = begin + 1; end <= shares; ++end) {
        int64_t at = begin;
        for (const Part& node : nodes_of({begin, end}, shares)) {
          EXPECT_EQ(node.begin, at);
          EXPECT_TRUE(is_node(node, shares));
          for (int64_t more = node.end + 1; more <= end; ++more) EXPECT_FALSE(is_node({node.begin, more}, shares));
          at = node.end;
        }
        EXPECT_EQ(at, end);
      }
  EXPECT_FALSE(is_node({1, 3}, 4));
  EXPECT_FALSE(is_node({0, 5}, 4));
  EXPECT_EQ(nodes_of({1, 8}, 12).size(), 3u);  // 1, 2-3, 4-7
}

TEST(ShareTree, SumsDoNotDependOnTheRanks) {
  int different = 0;  // of the numbers of shares, those whose sum by ranks has other bits
  for (int shares = 1; shares <= 19; ++shares) {
    const std::vector<float> x = some(shares);
    const float expected = tree(x, {0, shares});
    bool differs = false;
    for (int ranks = 1; ranks <= shares; ++ranks) {
      std::vector<ShareSum> all;
      for (int r = 0; r < ranks; ++r) {
        std::vector<ShareSum> own;
        const Part part = part_of(shares, ranks, r);
        for (int64_t w = part.begin; w < part.end; ++w) add_share(own, {{w, w + 1}, of(x[size_t(w)])}, shares);
        EXPECT_EQ(own.size(), nodes_of(part, shares).size());
        all.insert(all.end(), own.begin(), own.end());
      }
      EXPECT_EQ(float(values(sum_of(std::move(all), shares))[0]), expected) << shares << " shares, " << ranks;
      float by_rank = 0;
      for (int r = 0; r < ranks; ++r) {
        float own = 0;
        for (int64_t w = part_of(shares, ranks, r).begin; w < part_of(shares, ranks, r).end; ++w) own += x[size_t(w)];
        by_rank += own;
      }
      differs = differs || by_rank != expected;
    }
    different += differs;
  }
  EXPECT_GE(different, 12);
}

TEST(ShareTree, AllSharesAreNeeded) {
  EXPECT_THROW(sum_of({{{0, 1}, of(1)}}, 2), Error);
  EXPECT_THROW(sum_of({{{0, 1}, of(1)}, {{2, 3}, of(1)}}, 3), Error);
}

}  // namespace
}  // namespace ringtape::comm
