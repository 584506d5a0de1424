// Algorithms in virtual time: their cost in the alpha-beta model, and that none of them can hang the test.
#include "comm/transport/simulated.h"

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "comm/algorithm.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

constexpr LinkCost kLink{5e-6, 4e-11};  // 5 us, 25 GB/s

Operation sum_of(int64_t count) {
  return {.kind = Collective::all_reduce, .dtype = DType::f32, .count = count, .sequence = 1};
}

// The time of an all-reduce of `count` numbers; the result is not checked.
SimulationResult timed(int ranks, const Topology& topology, int64_t count, CollectiveFn all_reduce) {
  return simulate(
      ranks, topology,
      [&](Transport& t) {
        t.begin(sum_of(count), Deadline(Seconds(1)));
        const auto y = t.allocate(size_t(count) * 4);
        all_reduce(t, y.get(), y.get());
      },
      Payload::counted);
}

// 2 (p - 1) alpha + 2 (p - 1) / p S beta + (p - 1) / p S gamma
TEST(Simulated, ARingTakesTheTimeOfTheFormula) {
  for (const int p : {1, 2, 3, 8, 64})
    for (const double gamma : {0.0, 1e-10}) {
      const int64_t count = 64 * 3 * 300;  // a part is one piece
      const double bytes = double(count) * 4, n = p;
      const SimulationResult r = timed(p, Topology::one_switch(kLink, gamma), count, find_algorithm("ring").all_reduce);
      const double want =
          2 * (n - 1) * kLink.alpha + 2 * (n - 1) / n * bytes * kLink.beta + (n - 1) / n * bytes * gamma;
      EXPECT_NEAR(r.seconds, want, want * 1e-12) << p << " ranks, gamma " << gamma;
      EXPECT_EQ(r.steps, 2 * (p - 1));
      EXPECT_EQ(r.messages, int64_t{2} * p * (p - 1));
      EXPECT_EQ(r.bytes, 2 * (p - 1) * count * 4);
      EXPECT_EQ(r.links.size(), p == 1 ? 0u : size_t(2 * p));
      for (const LinkLoad& link : r.links) EXPECT_EQ(link.bytes, 2 * (p - 1) * count * 4 / p) << link.name;
    }
}

// Parts of several pieces: the combination of one piece overlaps with the transfer of the next.
TEST(Simulated, ARingInPiecesHidesTheCombination) {
  const int64_t count = 4 << 20;
  const double bytes = double(count) * 4, gamma = 1e-11, moving = 6 * kLink.alpha + 1.5 * bytes * kLink.beta,
               combining = 0.75 * bytes * gamma;
  const double seconds = timed(4, Topology::one_switch(kLink, gamma), count, find_algorithm("ring").all_reduce).seconds;
  EXPECT_GE(seconds, 1.5 * bytes * kLink.beta);
  EXPECT_LE(seconds, moving + 0.1 * combining);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMany = 128;  // changing between ranks costs much more
#else
constexpr int kMany = 1024;
#endif

// A sum in shards and the way back: both halves of an all-reduce, with parts that end where rows of 4,608 numbers do.
// RINGTAPE_LADDER: also on 1,024 and 4,096 ranks.
TEST(Simulated, ShardsCostWhatAnAllReduceCosts) {
  const Algorithm& ring = find_algorithm("ring");
  const bool full = std::getenv("RINGTAPE_LADDER");
  for (const int n : {2, 3, 64, 200, 1024, 4096}) {
    if (n > 200 && !full) continue;
    constexpr int64_t kRow = 4608, kCount = kRow * 4096;  // 75 MB
    std::vector<int64_t> cuts;
    for (int r = 0; r <= n; ++r) cuts.push_back(kRow * (4096 * int64_t(r) / n));
    const SimulationResult shards = simulate(
        n, Topology::one_switch(kLink),
        [&](Transport& t) {
          const auto memory = t.allocate(size_t(kCount) * 4);
          const auto own = [&] { return static_cast<float*>(memory.get()) + t.part(t.rank()).begin; };
          Operation op = sum_of(kRow * ((4096 + n - 1) / n));
          op.cuts = 1;
          for (const Collective kind : {Collective::reduce_scatter, Collective::all_gather}) {
            op.kind = kind, op.sequence = 1 + (kind == Collective::all_gather);
            t.begin(op, Deadline(Seconds(1)), cuts);
            kind == Collective::all_gather ? ring.all_gather(t, own(), memory.get())
                                           : ring.reduce_scatter(t, memory.get(), own());
          }
        },
        Payload::counted);
    const SimulationResult whole = timed(n, Topology::one_switch(kLink), kCount, ring.all_reduce);
    EXPECT_EQ(shards.bytes, 2 * (n - 1) * kCount * 4) << n;
    EXPECT_EQ(shards.bytes, whole.bytes) << n;
    if (n <= 1024) {
      EXPECT_LE(shards.seconds, 1.02 * whole.seconds) << n;  // more ranks have a row or two each
    }
  }
}

TEST(Simulated, AThousandRanks) {
  const SimulationResult r =
      timed(kMany, Topology::one_switch(kLink), int64_t{kMany} * 6400, find_algorithm("ring").all_reduce);
  EXPECT_NEAR(r.seconds, 2 * (kMany - 1) * (kLink.alpha + 25600 * kLink.beta), 1e-9);  // 12.3 ms for 25 MiB
  EXPECT_EQ(r.steps, 2 * (kMany - 1));
  EXPECT_EQ(r.messages, int64_t{2} * kMany * (kMany - 1));
}

// The maximum of the command line. If every rank has data for every other, 16 M pairs, no pair is stored unless a rank
// waits for it.
TEST(Simulated, FourThousandRanks) {
  const int n = 4 * kMany;
  const double lg = std::log2(double(n)), bytes = 1 << 20;
  const auto run = [&](const char* name) {
    return timed(n, Topology::one_switch(kLink), int64_t(bytes) / 4, find_algorithm(name).all_reduce);
  };
  const SimulationResult halved = run("halving_doubling");
  EXPECT_NEAR(halved.seconds, 2 * lg * kLink.alpha + 2 * (n - 1.0) / n * bytes * kLink.beta, 1e-9);
  EXPECT_EQ(halved.bytes, 2 * int64_t(n - 1) * int64_t(bytes));
  EXPECT_LT(run("double_tree").seconds, 1.5 * halved.seconds);
}

// Half of the bytes in each of two trees, in chunks: 2 lg p alpha + 2 S beta, and the time of a chunk on each level. A
// single tree takes 2 lg p (alpha + S beta), a ring 2 (p - 1) alpha + 2 S beta.
TEST(Simulated, TwoTreesBeatOneAndARing) {
  const double lg = std::log2(double(kMany));
  for (const int64_t bytes : {64 << 10, 256 << 10, 1 << 20}) {
    const auto seconds = [&](const char* name) {
      return timed(kMany, Topology::one_switch(kLink), bytes / 4, find_algorithm(name).all_reduce).seconds;
    };
    const double two = seconds("double_tree"), least = 2 * lg * kLink.alpha + 2 * double(bytes) * kLink.beta;
    EXPECT_GE(two, least - 2 * kLink.alpha) << bytes;
    EXPECT_LE(two, 1.5 * least) << bytes;
    EXPECT_LT(two, 0.7 * seconds("tree")) << bytes;
    EXPECT_LT(two, 0.2 * seconds("ring")) << bytes;
  }
}

// Every rank exchanges everything with a rank twice as far away as the last: lg p (alpha + S (beta + gamma)).
void doubling(Transport& t, const void*, void* y) {
  const Operation& op = t.operation();
  void* const received = t.scratch(op.bytes());
  for (int far = 1; far < t.size(); far *= 2) {
    const int peer = t.rank() ^ far;
    t.exchange({send_to(peer, y, op.bytes()), recv_from(peer, received, op.bytes())});
    const void* const sources[] = {received, y};
    t.combine(y, sources, op.count);
  }
}

TEST(Simulated, RecursiveDoublingTakesTheTimeOfTheFormula) {
  for (const int rounds : {1, 4, 10}) {
    const double bytes = 4e6, gamma = 1e-10;
    const SimulationResult r = timed(1 << rounds, Topology::one_switch(kLink, gamma), 1000000, doubling);
    EXPECT_NEAR(r.seconds, rounds * (kLink.alpha + bytes * (kLink.beta + gamma)), 1e-12);
    EXPECT_EQ(r.steps, rounds);
  }
}

TEST(Simulated, DataArrives) {
  for (int n = 1; n <= 17; ++n)
    for (const int64_t count : {0, 1, n - 1, n + 1, 1009})
      simulate(n, Topology::one_switch(kLink), [&](Transport& t) {
        std::vector<float> x(static_cast<size_t>(count)), y(x.size());
        for (size_t i = 0; i < x.size(); ++i) x[i] = float(t.rank() * 7 + int(i % 13));
        t.begin(sum_of(count), Deadline(Seconds(1)));
        find_algorithm("ring").all_reduce(t, x.data(), y.data());
        for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], float(7 * n * (n - 1) / 2 + n * int(i % 13)));
      });
}

// Here a rank runs until it waits, far ahead of one that has yet to receive what it sends.
TEST(Simulated, DataOfManyPiecesArrives) {
  for (const char* name : {"double_tree", "ring", "tree"})
    for (const int n : {3, 5, 8})
      for (const int root : {0, n - 1})
        simulate(n, Topology::one_switch(kLink), [&](Transport& t) {
          Operation op = sum_of(1 << 19);
          op.kind = Collective::reduce, op.root = root;
          std::vector<float> x(size_t(op.count)), y(x.size());
          for (size_t i = 0; i < x.size(); ++i) x[i] = float(t.rank() * 7 + int(i % 1009));
          t.begin(op, Deadline(Seconds(1)));
          find_algorithm(name).reduce(t, x.data(), y.data());
          for (size_t i = 0; i < x.size() && t.rank() == root; ++i)
            ASSERT_EQ(y[i], float(7 * n * (n - 1) / 2 + n * int(i % 1009))) << name << " " << n << " " << root;
        });
}

// Four ranks per island: 0 to 3 send to 4 to 7, all at once.
double crossing(int rails) {
  const Topology topology{.island = 4, .inside = {1e-6, 1e-11}, .between = kLink, .rails = rails};
  const SimulationResult r = simulate(8, topology, [](Transport& t) {
    t.begin(sum_of(1), Deadline(Seconds(1)));
    char data[1000] = {};
    t.rank() < 4 ? t.exchange({send_to(t.rank() + 4, data, 1000)}) : t.exchange({recv_from(t.rank() - 4, data, 1000)});
  });
  EXPECT_EQ(r.links.size(), size_t(2 * rails));
  EXPECT_EQ(r.links[0].name, "island 0 rail 0 out");
  return r.seconds;
}

TEST(Simulated, RanksOfAnIslandShareItsRails) {
  EXPECT_DOUBLE_EQ(crossing(1), kLink.alpha + 4 * 1000 * kLink.beta);
  EXPECT_DOUBLE_EQ(crossing(2), kLink.alpha + 2 * 1000 * kLink.beta);
  EXPECT_DOUBLE_EQ(crossing(4), kLink.alpha + 1000 * kLink.beta);
}

TEST(Simulated, TheLinksInsideAreTheirOwn) {
  const Topology topology{.island = 2, .inside = {1e-6, 1e-9}, .between = {10e-6, 10e-9}, .rails = 1};
  const SimulationResult r = simulate(4, topology, [](Transport& t) {
    t.begin(sum_of(1), Deadline(Seconds(1)));
    char data[2][100] = {};
    const int beside = t.rank() ^ 1, across = t.rank() ^ 2;
    t.exchange({send_to(beside, data[0], 100), recv_from(beside, data[1], 100)});
    if (t.rank() % 2 == 0) t.exchange({send_to(across, data[0], 100), recv_from(across, data[1], 100)});
  });
  EXPECT_DOUBLE_EQ(r.seconds, 1.1e-6 + 11e-6);
  EXPECT_EQ(r.steps, 2);
  ASSERT_EQ(r.links.size(), 12u);
  EXPECT_EQ(r.links.back().name, "island 1 rail 0 in");
  EXPECT_DOUBLE_EQ(r.links.back().busy, 1e-6);
}

TEST(Simulated, SaysTheSameEachTime) {
  const auto run = [] {
    const Topology topology{.island = 4, .inside = {1e-6, 1e-11}, .between = kLink, .rails = 2, .gamma = 1e-11};
    return timed(12, topology, 1001, find_algorithm("ring").all_reduce);
  };
  const SimulationResult a = run(), b = run();
  EXPECT_EQ(a.seconds, b.seconds);
  ASSERT_EQ(a.links.size(), b.links.size());
  for (size_t i = 0; i < a.links.size(); ++i) EXPECT_EQ(a.links[i].busy, b.links[i].busy);
}

std::string failure_of(int ranks, const std::function<void(Transport&)>& f) {
  return test::message_of<CommError>([&] { simulate(ranks, Topology::one_switch(kLink), f); });
}

TEST(Simulated, ADeadlockIsReported) {
  const std::string all = failure_of(3, [](Transport& t) {
    t.begin(sum_of(16), Deadline(Seconds(1)));
    char data[64] = {};
    t.exchange({send_to((t.rank() + 1) % 3, data, 64)});  // before any rank receives
    t.exchange({recv_from((t.rank() + 2) % 3, data, 64)});
  });
  EXPECT_EQ(all,
            "deadlock: 3 ranks wait for messages that nobody will send or receive: "
            "rank 0 waits for rank 1 to receive 64 bytes in all_reduce #1 (sum, f32, 16 elements); "
            "rank 1 waits for rank 2 to receive 64 bytes in all_reduce #1 (sum, f32, 16 elements); "
            "rank 2 waits for rank 0 to receive 64 bytes in all_reduce #1 (sum, f32, 16 elements)");
  const std::string one = failure_of(2, [](Transport& t) {
    t.begin(sum_of(16), Deadline(Seconds(1)));
    char data[64];
    if (t.rank() == 1) t.exchange({recv_from(0, data, 64)});
  });
  EXPECT_EQ(one,
            "deadlock: 1 rank waits for messages that nobody will send or receive: rank 1 waits for rank 0 to send 64 "
            "bytes in all_reduce #1 (sum, f32, 16 elements); rank 0 is done");
}

TEST(Simulated, ADifferentCallIsNamed) {
  const std::string cause = failure_of(2, [](Transport& t) {
    t.begin(sum_of(t.rank() == 0 ? 16 : 17), Deadline(Seconds(1)));
    char data[64] = {};
    t.rank() == 0 ? t.exchange({send_to(1, data, 64)}) : t.exchange({recv_from(0, data, 64)});
  });
  EXPECT_NE(cause.find("rank 0 calls all_reduce #1 (sum, f32, 16 elements)"), std::string::npos) << cause;
}

TEST(Simulated, WhatARankThrowsComesOut) {
  EXPECT_EQ(test::message_of<ShapeError>([] {
              simulate(3, Topology::one_switch(kLink), [](Transport& t) {
                t.begin(sum_of(16), Deadline(Seconds(1)));
                char data[64] = {};
                if (t.rank() == 2) throw ShapeError("not today");
                t.rank() == 0 ? t.exchange({send_to(1, data, 64), recv_from(2, data, 64)})
                              : t.exchange({recv_from(0, data, 64)});
              });
            }),
            "not today");
  EXPECT_EQ(failure_of(2, [](Transport& t) { t.exchange({send_to(2, nullptr, 0)}); }),
            "rank 0: there is no rank 2 in a group of 2");
}

}  // namespace
}  // namespace ringtape::comm
