// Buffers of which each rank holds a part, and parts that arrive while they are waited for by use.
#include "comm/parallel/shards.h"

#include "core/random.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape::comm {
namespace {

std::string on_ranks(int n, const std::function<void(ProcessGroup&)>& f) {
  return test::run_threads(n, 1, Seconds(60), [&](Context context) {
    ProcessGroup group(threads_transport(std::move(context)));
    f(group);
  });
}

TEST(Shards, AreDividedEvenlyWhereTheyMayBeCut) {
  const std::vector<int64_t> places = {0, 10, 20, 100, 110, 120, 130, 200};
  EXPECT_EQ(*divide(0, 140, places, 2).cuts, (std::vector<int64_t>{0, 100, 140}));
  EXPECT_EQ(*divide(100, 140, places, 4).cuts, (std::vector<int64_t>{0, 10, 20, 30, 40}));
  EXPECT_EQ(*divide(100, 140, places, 2).cuts, (std::vector<int64_t>{0, 20, 40}));
  EXPECT_EQ(*divide(20, 100, places, 3).cuts, (std::vector<int64_t>{0, 0, 80, 80}));  // cannot be cut
  EXPECT_EQ(*divide(20, 100, {}, 1).cuts, (std::vector<int64_t>{0, 80}));
  EXPECT_EQ(*divide(7, 7, places, 2).cuts, (std::vector<int64_t>{0, 0, 0}));
  for (const int ranks : {1, 2, 3, 7, 16}) {
    const Stretch s = divide(10, 200, places, ranks);
    EXPECT_EQ(s.begin, 10);
    EXPECT_EQ(s.end(), 200);
    EXPECT_TRUE(std::is_sorted(s.cuts->begin(), s.cuts->end()));
    for (const int64_t cut : *s.cuts) EXPECT_TRUE(std::ranges::count(places, cut + 10)) << cut;
  }
}

// Three stretches, given out of order, with a gap that nobody holds and parts without elements.
std::vector<Stretch> stretches(int ranks) {
  const std::vector<int64_t> places = {0, 64, 128, 400, 1000, 1024, 2048, 5000};
  return {divide(1024, 5000, places, ranks), divide(0, 400, places, ranks), divide(400, 1000, places, ranks)};
}
constexpr int64_t kSize = 5000;

// What the holder of element i writes in a round, and -1 in the gap.
float value_of(const std::vector<Stretch>& all, int ranks, int64_t i, int round) {
  for (const Stretch& s : all)
    for (int r = 0; r < ranks; ++r)
      if (const Part part = s.of(r); i >= part.begin && i < part.end) return float(1000 * round + 10 * r + i % 7);
  return -1;
}

void write_own(const Shards& shards, const Tensor& x, int ranks, int round) {
  for (const Part& own : shards.own())
    for (int64_t i = own.begin; i < own.end; ++i) x.data<float>()[i] = value_of(stretches(ranks), ranks, i, round);
}

void expect_values(const Tensor& x, int64_t begin, int ranks, int round) {
  const std::vector<Stretch> all = stretches(ranks);
  for (int64_t i = 0; i < x.size(); ++i)
    if (x.data<float>()[i] != value_of(all, ranks, begin + i, round))
      throw CommError(concat("element ", begin + i, " is ", x.data<float>()[i], " in round ", round));
}

TEST(Shards, AreGatheredWholeAndInPieces) {
  for (const int n : {1, 2, 3, 5})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& g) {
      const Shards shards(g, stretches(n));
      const Tensor x({kSize});
      std::fill_n(x.data<float>(), kSize, -1.0f);
      write_own(shards, x, n, 0);
      for (const Part piece : {Part{0, 1}, {60, 130}, {399, 401}, {1000, 1024}, {3000, 5000}, {17, 17}}) {
        const Tensor window({piece.size()});
        std::copy_n(x.data<float>() + piece.begin, piece.size(), window.data<float>());
        shards.gather(window, piece.begin);
        expect_values(window, piece.begin, n, 0);
      }
      shards.gather(x);
      expect_values(x, 0, n, 0);
    }));
}

// Whoever uses an element sees what its holder wrote, in whatever order it is used.
TEST(Shards, ArriveBeforeTheyAreUsed) {
  for (const int n : {2, 3})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& g) {
      const Tensor x = g.allocate({kSize}, DType::f32);
      std::fill_n(x.data<float>(), kSize, -1.0f);
      Shards shards(g, stretches(n));
      for (int round = 0; round < 60; ++round) {
        write_own(shards, x, n, round);
        shards.start_gather(x);
        for (uint64_t use = 0; use < uint64_t(round % 4); ++use) {
          const auto random = philox(7, uint64_t(Stream::test), uint64_t(g.rank()) << 32 | uint64_t(round) << 8 | use);
          const int64_t begin = random.x[0] % kSize, size = 1 + random.x[1] % (kSize - begin);
          expect_values(x.window({size}, {1}, begin), begin, n, round);
        }
        if (round % 5 == 0) expect_values(x, 0, n, round);
      }
      expect_values(x, 0, n, 59);
      if (shards.totals().communicating.count() <= 0) throw CommError("no time was counted");
    }));
}

TEST(Shards, ThatAreStillOnTheirWayArriveBeforeTheyGo) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& g) {
    const Tensor x = g.allocate({kSize}, DType::f32);
    std::fill_n(x.data<float>(), kSize, -1.0f);
    {
      Shards shards(g, stretches(3));
      write_own(shards, x, 3, 4);
      shards.start_gather(x);
    }
    expect_values(x, 0, 3, 4);
  }));
}

// A rank that fails instead of gathering: the others learn it where they use an element, each time.
TEST(Shards, OfARankThatFailedCannotBeUsed) {
  const std::string cause = on_ranks(2, [](ProcessGroup& g) {
    const Tensor x = g.allocate({kSize}, DType::f32);
    Shards shards(g, stretches(2));
    if (g.rank() == 1) throw CommError("out of luck");
    shards.start_gather(x);
    for (int i = 0; i < 2; ++i) {
      const std::string said = ringtape::test::message_of<CommError>([&] { (void)View(x.window({1}, {1}, 3000)); });
      if (said.find("out of luck") == said.npos) throw UsageError("said: " + said);
    }
  });
  EXPECT_EQ(cause, "out of luck");
}

}  // namespace
}  // namespace ringtape::comm
