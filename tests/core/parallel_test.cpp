// The team of threads.
#include "core/parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#include "core/check.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;

TEST(Threads, AreCountedPerThread) {
  const int before = threads();
  std::thread([] { set_threads(7); }).join();
  EXPECT_EQ(threads(), before);
  EXPECT_NE(message_of<UsageError>([] { set_threads(0); }).find("at least 1"), std::string::npos);
}

TEST(ParallelFor, CoversEachElementOnce) {
  for (int count : {1, 2, 3, 8})
    test::with_threads(count, [] {
      for (int64_t n : {0, 1, 2, 7, 1000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
        for (int repeat = 0; repeat < 50; ++repeat)
          parallel_for(n, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) ++hits[size_t(i)];
          });
        for (const auto& h : hits) EXPECT_EQ(h, 50);
      }
      return 0;
    });
}

TEST(ParallelFor, KeepsPartsAtLeastAsLargeAsTheGrain) {
  test::with_threads(8, [] {
    std::atomic<int> parts = 0;
    parallel_for(100, 40, [&](int64_t begin, int64_t end) {
      ++parts;
      EXPECT_GE(end - begin, 40);
    });
    EXPECT_EQ(parts, 2);
    return 0;
  });
}

TEST(ParallelFor, NestedCallsRunSeriallyAndExceptionsComeBack) {
  test::with_threads(4, [] {
    std::atomic<int64_t> sum = 0;
    parallel_for(4, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) parallel_for(10, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    });
    EXPECT_EQ(sum, 40);
    const auto fail = [](int64_t begin, int64_t) { RT_CHECK_AS(UsageError, begin != 2, "part 2"); };
    for (int i = 0; i < 20; ++i) EXPECT_EQ(message_of<UsageError>([&] { parallel_for(4, 1, fail); }), "part 2");
    return 0;
  });
}

TEST(ParallelFor, EachThreadHasATeamOfItsOwn) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> sum = 0;
  for (int r = 0; r < 4; ++r)
    ranks.emplace_back([&] {
      set_threads(3);
      for (int i = 0; i < 200; ++i) parallel_for(30, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(sum, 4 * 200 * 30);
}

// Through plain memory, both ways.
TEST(ParallelFor, PartsSeeTheCallerAndTheCallerSeesParts) {
  test::with_threads(4, [] {
    std::vector<int64_t> from(1000), to(1000);
    for (int64_t round = 0; round < 100; ++round) {
      for (size_t i = 0; i < from.size(); ++i) from[i] = round + int64_t(i);
      parallel_for(int64_t(to.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[size_t(i)] = 2 * from[size_t(i)];
      });
      for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], 2 * (round + int64_t(i)));
    }
    return 0;
  });
}

}  // namespace
}  // namespace ringtape
