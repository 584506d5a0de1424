// Collectives: every algorithm, over every transport that this machine has.
#include <thread>

#include "comm/algorithm.h"
#include "comm/transport.h"
#include "tests/support.h"

namespace ringtape::comm {
namespace {

// Runs f on n threads, each with the transport of its rank.
template <class F>
void on_threads(int n, F&& f) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::thread> ranks;
  for (int r = 0; r < n; ++r)
    ranks.emplace_back([&, r] {
      try {
        const auto transport = threads_transport({r, n, store, failure, Seconds(20)});
        f(*transport);
      } catch (const std::exception& e) {
        failure->raise(e.what());
      }
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(failure->cause(), "");
}

TEST(Comm, RingAllReduceSums) {
  for (const int n : {1, 2, 3, 5})
    for (const int64_t count : {0, 1, n - 1, n, n + 1, 1009}) on_threads(n, [&](Transport& t) {
      std::vector<float> x(static_cast<size_t>(count)), y(x.size());
      for (size_t i = 0; i < x.size(); ++i) x[i] = float(t.rank() * 7 + int(i % 13));
      t.begin({.kind = Collective::all_reduce, .dtype = DType::f32, .count = count, .sequence = 1}, Deadline(Seconds(20)));
      find_algorithm("ring").all_reduce(t, x.data(), y.data());
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], float(7 * n * (n - 1) / 2 + n * int(i % 13)));
    });
}

}  // namespace
}  // namespace ringtape::comm
