// Collectives with parts of different sizes: every algorithm that has parts, over every transport of this machine.
#include <algorithm>
#include <cmath>

#include "comm/algorithm.h"
#include "comm/process_group.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape::comm {
namespace {

using test::kWorlds;
using test::World;
using Cuts = std::vector<int64_t>;

// Equal parts, empty ones at the ends and between, all in one part, parts of several pieces.
Cuts cuts_of(int pattern, int n) {
  Cuts cuts = {0};
  for (int r = 0; r < n; ++r) {
    const int64_t sizes[] = {7, r % 3 == 1 ? 0 : 5 * r + 1, r == n / 2 ? 1009 : 0, r * r, (r + 1) % 2 * 100'003, 0};
    cuts.push_back(cuts.back() + sizes[pattern]);
  }
  return cuts;
}
constexpr int kPatterns = 6;

float value(int rank, int64_t i) { return float((7 * rank + 3 * i + i / 5) % 4); }
float total(int ranks, int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value(r, i);
  return sum;
}

void run_cuts(Transport& t, const Algorithm& algorithm, const Cuts& cuts, uint64_t& sequence) {
  const int n = t.size(), r = t.rank();
  const int64_t whole = cuts.back(), begin = cuts[size_t(r)], own = cuts[size_t(r) + 1] - begin;
  const auto memory = t.allocate(size_t(whole + 2) * sizeof(float));
  float* const all = static_cast<float*>(memory.get()) + 1;  // between guards
  const std::string what = concat(algorithm.name, ", ", n, " ranks over ", t.name(), ", rank ", r);
  Operation op{.kind = Collective::reduce_scatter, .dtype = DType::f32, .cuts = 1, .algorithm = algorithm.id()};
  for (int q = 0; q < n; ++q) op.count = std::max(op.count, cuts[size_t(q) + 1] - cuts[size_t(q)]);
  const auto is = [&](int64_t i, float x, float expected) {
    if (x != expected) throw CommError(concat(what, ": element ", i, " is ", x, ", expected ", expected));
  };
  for (const bool in_place : {true, false}) {
    std::vector<float> part(static_cast<size_t>(own) + 1, -1);
    float* const mine = in_place ? all + begin : part.data();
    all[-1] = all[whole] = -1;
    if (algorithm.reduce_scatter) {
      for (int64_t i = 0; i < whole; ++i) all[i] = value(r, i);
      op.kind = Collective::reduce_scatter, op.sequence = ++sequence;
      t.begin(op, Deadline(t.context().timeout), cuts);
      algorithm.reduce_scatter(t, all, mine);
      for (int64_t i = 0; i < own; ++i) is(begin + i, mine[i], total(n, begin + i));
    }
    if (algorithm.all_gather) {
      for (int64_t i = 0; i < whole; ++i) all[i] = -1;
      for (int64_t i = 0; i < own; ++i) mine[i] = value(r, begin + i);
      op.kind = Collective::all_gather, op.sequence = ++sequence;
      t.begin(op, Deadline(t.context().timeout), cuts);
      algorithm.all_gather(t, mine, all);
      for (int q = 0; q < n; ++q)
        for (int64_t i = cuts[size_t(q)]; i < cuts[size_t(q) + 1]; ++i) is(i, all[i], value(q, i));
    }
    is(-1, all[-1], -1), is(whole, all[whole], -1), is(own, part.back(), -1);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::vector<int> kRanks = {2, 3, 5};  // it takes thirty times as long
#else
const std::vector<int> kRanks = {1, 2, 3, 4, 5, 7, 8};
#endif

TEST(Parts, OfAnySizeWithEveryAlgorithm) {
  for (const World& world : kWorlds)
    for (const int n : kRanks) {
      if (n > world.most_ranks) continue;
      const std::string cause = world.run(n, test::island_of(n), Seconds(60), [](Transport& t) {
        uint64_t sequence = 0;
        for (const Algorithm* algorithm : algorithms())
          for (int pattern = 0; pattern < kPatterns; ++pattern)
            run_cuts(t, *algorithm, cuts_of(pattern, t.size()), sequence);
      });
      EXPECT_EQ(cause, "") << world.name << ", " << n << " ranks";
    }
}

std::string on_ranks(int n, const std::function<void(ProcessGroup&)>& f) {
  return test::run_threads(n, 1, Seconds(60), [&](Context context) {
    ProcessGroup group(threads_transport(std::move(context)));
    f(group);
  });
}

// In the order of the ranks as all_reduce, by which a sharded sum has the bits of a whole one.
TEST(Parts, SumsHaveTheBitsOfAnAllReduce) {
  for (const int n : {2, 3, 7})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& g) {
      g.set_deterministic(true);
      const auto cuts = std::make_shared<const Cuts>(cuts_of(1, n));
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
        const Tensor whole({cuts->back()}), parts({cuts->back()});
        for (int64_t i = 0; i < whole.size(); ++i)
          whole.data<float>()[i] = parts.data<float>()[i] = float(std::sin(double(1000 * g.rank() + i)));
        g.all_reduce(whole, op).wait();
        const Work work = g.reduce_scatter(parts, cuts, op).start();
        work.wait();
        g.all_gather(parts, cuts).wait();
        if (!ringtape::test::same_bytes(parts, whole)) throw CommError("other bits");
      }
    }));
}

TEST(Parts, WrongCutsAreRefused) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& g) {
    const Tensor x({10});
    for (const Cuts& cuts : {Cuts{}, Cuts{0, 10}, Cuts{0, 4, 9}, Cuts{1, 4, 10}, Cuts{0, 11, 10}, Cuts{0, -1, 10}}) {
      const std::string said =
          ringtape::test::message_of<ShapeError>([&] { g.all_gather(x, std::make_shared<const Cuts>(cuts)); });
      if (said.find("expected 3 that ascend from 0 to 10") == said.npos) throw CommError(said);
    }
    const Tensor bools({2}, DType::b8);
    (void)ringtape::test::message_of<DTypeError>([&] {
      g.reduce_scatter(bools, std::make_shared<const Cuts>(Cuts{0, 1, 2}));
    });
  }));
}

// Ranks with other cuts are named at once, as for any other argument.
TEST(Parts, OtherCutsOnARankAreAnError) {
  const std::string cause = on_ranks(2, [](ProcessGroup& g) {
    const Tensor x({10});
    g.all_gather(x, std::make_shared<const Cuts>(g.rank() ? Cuts{0, 4, 10} : Cuts{0, 6, 10})).wait();
  });
  EXPECT_MENTIONS(cause, "all_gather #1");
  EXPECT_MENTIONS(cause, "with parts of other sizes; every rank must make the same calls");
}

}  // namespace
}  // namespace ringtape::comm
