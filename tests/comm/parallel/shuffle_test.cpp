// Rows that move to other ranks, and back.
#include "comm/parallel/shuffle.h"

#include <algorithm>
#include <numeric>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using ringtape::test::message_of;
using ringtape::test::same_bytes;
using ringtape::test::values;

template <class F> std::string on_ranks(int n, F&& f) {
  return test::kThreadWorlds[0].open(n, 1, Seconds(20), [&](std::unique_ptr<Transport> t) {
    ProcessGroup group(std::move(t));
    f(group);
  });
}

// Rows (number, 1000 + number), numbered over the ranks.
Tensor numbered(const std::vector<int64_t>& counts, int rank, DType dtype) {
  const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0}), n = counts[size_t(rank)];
  const Tensor first = reshape(cast(arange(n), DType::f32) + double(begin), {n, 1});
  return cast(concat({first, first + 100.0}, 1), dtype);
}

const std::vector<std::vector<int64_t>> kCounts = {{5}, {8, 8}, {4, 4, 4}, {3, 0, 9}, {0, 1, 0, 2}, {0, 0}};

TEST(Shuffle, IsAPermutationThatCanBeUndone) {
  for (const DType dtype : {DType::f32, DType::u8, DType::f16})
    for (const std::vector<int64_t>& counts : kCounts) {
      const int n = int(counts.size());
      std::vector<Tensor> shuffled(counts.size());
      ASSERT_EQ(on_ranks(n,
                         [&](ProcessGroup& group) {
                           const Tensor x = numbered(counts, group.rank(), dtype);
                           const Tensor y = shuffle(group, x, 3);
                           RT_CHECK_EQ(y.shape(), x.shape());
                           RT_CHECK(same_bytes(shuffle(group, x, 3, counts), y),
                                    "with and without the numbers of rows");
                           RT_CHECK(same_bytes(unshuffle(group, y, 3), x), "undone");
                           RT_CHECK(same_bytes(unshuffle(group, transpose(contiguous(transpose(y))), 3, counts), x),
                                    "strided");
                           shuffled[size_t(group.rank())] = y;
                         }),
                "");
      std::vector<double> rows, expected;
      for (const Tensor& y : shuffled)
        for (int64_t i = 0; i < y.dim(0); ++i) {
          const std::vector<double> row = values(slice(y, 0, i, i + 1));
          EXPECT_EQ(row[1], row[0] + 100);
          rows.push_back(row[0]);
        }
      expected.resize(rows.size());
      std::iota(expected.begin(), expected.end(), 0);
      if (rows.size() > 6) {
        EXPECT_NE(rows, expected) << "nothing was shuffled";
      }
      std::sort(rows.begin(), rows.end());
      EXPECT_EQ(rows, expected);
    }
}

TEST(Shuffle, RowsChangeRanksAndSeedsDiffer) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group) {
    const std::vector<int64_t> counts{16, 16};
    const Tensor x = numbered(counts, group.rank(), DType::f32);
    const Tensor y = shuffle(group, x, 1);
    int64_t foreign = 0;
    for (int64_t i = 0; i < 16; ++i) foreign += (y.data<float>()[2 * i] >= 16) != (group.rank() == 1);
    RT_CHECK(foreign > 2 && foreign < 14, foreign);
    RT_CHECK(!same_bytes(shuffle(group, x, 2), y));
  }));
}

TEST(Shuffle, GradientsTravelBack) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& group) {
    const std::vector<int64_t> counts{2, 5, 0};
    const Tensor x = leaf(numbered(counts, group.rank(), DType::f64));
    const Tensor y = shuffle(group, x, 7);
    backward(y, square(y.detach()));
    RT_CHECK(same_bytes(grad(x), square(x.detach())));
    const Tensor z = leaf(y.detach());
    backward(unshuffle(group, z, 7, counts), x.detach() * 2);
    RT_CHECK(same_bytes(grad(z), y.detach() * 2));
  }));
}

TEST(Shuffle, SaysWhatItNeeds) {
  EXPECT_SILENT(on_ranks(1, [](ProcessGroup& group) {
    EXPECT_EQ(message_of<ShapeError>([&] { shuffle(group, ones({}), 1); }), "shuffle: expected x (N, ...), got ()");
    EXPECT_EQ(message_of<ShapeError>([&] {
                shuffle(group, ones({3}), 1, {1, 2});
              }),
              "shuffle: the rows of 2 ranks in a group of 1");
    EXPECT_EQ(message_of<ShapeError>([&] { unshuffle(group, ones({3}), 1, {2}); }),
              "unshuffle: expected 2 rows on rank 0, got x (3,)");
  }));
}

}  // namespace
}  // namespace ringtape::comm
