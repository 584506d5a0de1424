// Groups of ranks: arguments of calls, the order of calls, asynchronous work, failures, split groups.
#include "comm/process_group.h"

#include <barrier>
#include <cmath>
#include <thread>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/choice.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using ringtape::test::message_of;
using ringtape::test::same_bytes;
using ringtape::test::values;
using test::kThreadWorlds;

// Runs f on the group of each rank, in each world; returns the cause of a failure.
template <class F> std::string on_ranks(int n, F&& f, Seconds timeout = Seconds(30), int island = 1) {
  std::string all;
  for (const test::ThreadWorld& world : kThreadWorlds) {
    const std::string cause = world.open(n, island, timeout, [&](std::unique_ptr<Transport> t) {
      ProcessGroup group(std::move(t));
      f(group);
    });
    if (all != cause) all += cause;
  }
  return all;
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw CommError(what);
}

Tensor filled(const Shape& shape, double value) {
  Tensor x(shape);
  for (float& v : x.span<float>()) v = float(value);
  return x;
}
void expect_all(const Tensor& x, double value, const char* what) {
  for (const double v : values(x)) expect(v == value, concat(what, ": ", v, ", expected ", value));
}

TEST(ProcessGroup, RanksWriteToOneMemory) {
  for (const int n : {1, 2, 3, 5})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& g) {
      if (!g.transport().abilities().shares_memory) {
        EXPECT_MENTIONS(message_of<UsageError>([&] { (void)g.allocate_common({3}, DType::f32); }), "use shm");
        return;
      }
      for (const int64_t each : {0, 1, 5, 3000}) {
        const Tensor all = g.allocate_common({n, each}, DType::f32), other = g.allocate_common({2}, DType::f64);
        expect_all(all, 0, "at first");
        g.barrier().wait();
        for (int64_t i = 0; i < each; ++i) all.data<float>()[g.rank() * each + i] = float(g.rank());
        g.barrier().wait();
        for (int64_t i = 0; i < n * each; ++i) expect(all.data<float>()[i] == float(i / each), "another's element");
        expect_all(other, 0, "the other memory");
        g.barrier().wait();
      }
    }));
}

TEST(ProcessGroup, EveryCollective) {
  for (const int n : {1, 2, 3, 5})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& g) {
      const int r = g.rank();
      const double sum = n * (n - 1) / 2;
      expect(g.size() == n, "size");
      Tensor y = filled({3}, r);
      g.all_reduce(y).wait();
      expect_all(y, sum, "all_reduce");
      g.all_reduce(y, filled({3}, r), ReduceOp::max).wait();
      expect_all(y, n - 1, "all_reduce with x");
      g.reduce_scatter(y, filled({n, 3}, r), ReduceOp::avg).wait();
      expect_all(y, float(sum) * float(1.0 / n), "reduce_scatter");
      const Tensor whole({n, 2});
      g.all_gather(whole, filled({2}, r)).wait();
      for (int i = 0; i < n; ++i) expect_all(slice(whole, 0, i, i + 1), i, "all_gather");
      y = filled({4}, r);
      g.broadcast(y, n - 1).wait();
      expect_all(y, n - 1, "broadcast");
      g.reduce(r == 0 ? y : Tensor(), filled({4}, r), 0).wait();
      if (r == 0) expect_all(y, sum, "reduce");
      g.gather(r == n - 1 ? whole : Tensor(), filled({2}, 10 * r), n - 1).wait();
      for (int i = 0; r == n - 1 && i < n; ++i) expect_all(slice(whole, 0, i, i + 1), 10 * i, "gather");
      g.scatter(y, r == 0 ? reshape(filled({n, 4}, 7), {n, 4}) : Tensor(), 0).wait();
      expect_all(y, 7, "scatter");
      const Tensor from({n, 2}), to({n, 2});
      for (int i = 0; i < 2 * n; ++i) from.data<float>()[i] = float(100 * r + i / 2);
      g.all_to_all(to, from).wait();
      for (int i = 0; i < n; ++i) expect_all(slice(to, 0, i, i + 1), 100 * i + r, "all_to_all");
      g.barrier().wait();
    }));
}

// In a process without others every collective returns its input, also in the fixed order.
TEST(ProcessGroup, AGroupOfOneIsAGroup) {
  ProcessGroup& g = alone();
  EXPECT_EQ(&g, &alone());
  EXPECT_EQ(g.rank(), 0);
  EXPECT_EQ(g.size(), 1);
  for (const bool deterministic : {false, true}) {
    g.set_deterministic(deterministic);
    const Tensor x = filled({3}, 0.1);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max}) {
      const Tensor y = filled({3}, 7), z = filled({3}, 7), w = filled({3}, 7);
      g.all_reduce(y, x, op).wait(), g.reduce_scatter(z, x, op).wait(), g.reduce(w, x, 0, op).wait();
      for (const Tensor& t : {y, z, w}) EXPECT_TRUE(same_bytes(t, x));
    }
    const Tensor y = filled({3}, 7), z = filled({3}, 7), w = filled({3}, 7), v = filled({3}, 7);
    g.all_gather(y, x).wait(), g.gather(z, x, 0).wait(), g.scatter(w, x, 0).wait(), g.all_to_all(v, x).start().wait();
    for (const Tensor& t : {y, z, w, v}) EXPECT_TRUE(same_bytes(t, x));
    g.broadcast(y, 0).wait();
    g.barrier().wait();
    EXPECT_TRUE(same_bytes(y, x));
  }
  g.set_deterministic(false);
  EXPECT_EQ(g.split(3, 1)->size(), 1);
  EXPECT_MENTIONS(message_of<UsageError>([&] { g.broadcast(filled({1}, 0), 1); }), "root 1 in a group of 1 ranks");
  ProcessGroup* other = nullptr;
  std::thread([&] { other = &alone(); }).join();
  EXPECT_NE(other, &g);
}

TEST(ProcessGroup, WorkGoesOnBesideTheCaller) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& g) {
    std::vector<Tensor> buckets;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      buckets.push_back(filled({1000 + i}, g.rank() + i));
      works.push_back(g.all_reduce(buckets.back()));
      if (i % 3 != 1) works.back().start();
      if (i % 7 == 5) works[size_t(i / 2)].wait();
    }
    for (int i = 19; i >= 0; --i) works[size_t(i)].wait();
    for (int i = 0; i < 20; ++i) {
      expect(works[size_t(i)].done(), "done");
      expect_all(buckets[size_t(i)], 3 + 3 * i, "bucket");
    }
  }));
}

// Ranks start and wait for works in different ways: only the order of calls matters.
TEST(ProcessGroup, StartedWorkMeetsWaitedWork) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& g) {
    for (int i = 0; i < 50; ++i) {
      const Tensor a = filled({7}, i), b = filled({7}, 1);
      const Work first = g.all_reduce(a), second = g.all_reduce(b);
      if ((i + g.rank()) % 2) second.start();
      second.wait();
      expect(first.done(), "the first is done before the second");
      expect_all(a, 2 * i, "first");
      expect_all(b, 2, "second");
    }
  }));
}

TEST(ProcessGroup, ForgottenWorkIsDoneBeforeTheGroupGoes) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& g) {
    const Tensor y = filled({5}, 1);
    {
      ProcessGroup inner(g.transport().open([&] {
        Context c = g.transport().context();
        c.store = prefix_store(c.store, "inner");
        return c;
      }()));
      if (g.rank() == 0) inner.all_reduce(y);
      else inner.all_reduce(y).start();
    }
    expect_all(y, 2, "forgotten");
  }));
}

TEST(ProcessGroup, Split) {
  const auto check = [](ProcessGroup& g) {
    const int r = g.rank();
    // Even and odd ranks, in reverse order.
    const auto half = g.split(r % 2, -r);
    expect(half->size() == 3 && half->rank() == 2 - r / 2, concat("place ", half->rank(), " of ", half->size()));
    const Tensor y = filled({4}, r);
    half->all_reduce(y).wait();
    expect_all(y, r % 2 ? 9 : 6, "sum of a half");
    const auto single = half->split(r, 0);
    expect(single->size() == 1, "a group of one");
    single->all_reduce(y).wait();
    const auto islands = g.split(0, r);
    expect(islands->transport().context().island == 3, "islands stay");
    expect(half->transport().context().island == 1, "ranks of several islands in turn are none");
    g.all_reduce(y).wait();
    expect_all(y, 45, "the first group still works");
  };
  EXPECT_SILENT(on_ranks(6, check, Seconds(30), 3));
}

TEST(ProcessGroup, ArgumentsAreCheckedBeforeAnythingIsSent) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& g) {
    const Tensor y = filled({4, 4}, 1);
    EXPECT_EQ(message_of<ShapeError>([&] { g.all_gather(y, y); }),
              "all_gather: y has 16 elements, expected 32, 2 times 16");
    EXPECT_EQ(message_of<ShapeError>([&] { g.all_reduce(transpose(y)); }),
              "all_reduce: y has shape (4, 4) and strides (1, 4); it must be contiguous");
    EXPECT_EQ(message_of<ShapeError>([&] { g.all_reduce(Tensor()); }),
              concat("all_reduce: y is undefined on rank ", g.rank()));
    EXPECT_EQ(message_of<DTypeError>([&] { g.all_reduce(y, Tensor({16}, DType::f64)); }),
              "all_reduce: x is f64, the other operand f32; convert one with cast(x, dtype)");
    EXPECT_EQ(message_of<DTypeError>([&] { g.all_reduce(Tensor({2}, DType::b8)); }),
              "all_reduce: booleans have no sum; convert them with cast(x, dtype)");
    const Tensor elsewhere = full({2}, 1, DType::f32, {DeviceType::cpu, 1});  // of the same memory
    g.all_reduce(elsewhere).wait();
    expect_all(elsewhere.copy_to(Device{}), 2, "on cpu:1");
    EXPECT_EQ(message_of<UsageError>([&] { g.broadcast(y, 2); }), "broadcast: root 2 in a group of 2 ranks");
    EXPECT_EQ(message_of<ShapeError>([&] { g.all_to_all(Tensor({3}), Tensor({3})); }),
              "all_to_all: x has 3 elements, which are not 2 equal parts");
    EXPECT_EQ(message_of<ShapeError>(
                  [&] { g.all_reduce(slice(reshape(y, {16}), 0, 0, 8), slice(reshape(y, {16}), 0, 4, 12)); }),
              concat("all_reduce: x and y overlap; in place, the smaller one is part ", g.rank(), " of the larger"));
    g.all_gather(y, slice(y, 0, 2 * g.rank(), 2 * g.rank() + 2)).wait();  // in place
    g.all_reduce(y).wait();
    expect_all(y, 2, "the group still works");
  }));
}

TEST(ProcessGroup, MismatchNamesBothCalls) {
  struct Case {
    const char* name;
    std::function<void(ProcessGroup&)> rank1;
    const char* theirs;
  };
  const Case cases[] = {
      {"op", [](ProcessGroup& g) { g.all_reduce(filled({10}, 1), ReduceOp::max).wait(); },
       "all_reduce #1 (max, f32, 10 elements)"},
      {"count", [](ProcessGroup& g) { g.all_reduce(filled({11}, 1)).wait(); }, "all_reduce #1 (sum, f32, 11 elements)"},
      {"dtype", [](ProcessGroup& g) { g.all_reduce(Tensor({10}, DType::i32)).wait(); },
       "all_reduce #1 (sum, i32, 10 elements)"},
      {"collective", [](ProcessGroup& g) { g.broadcast(filled({10}, 1), 0).wait(); },
       "broadcast #1 (f32, 10 elements, root 0)"},
      {"order",
       [](ProcessGroup& g) {
         g.barrier().wait();
         g.all_reduce(filled({10}, 1)).wait();
       },
       "barrier #1"},
      {"algorithm",
       [](ProcessGroup& g) {
         g.set_deterministic(true);
         g.all_reduce(filled({10}, 1)).wait();
       },
       nullptr},
  };
  for (const Case& c : cases)
    for (const int n : {2, 3}) {
      std::atomic<int> told{0};
      std::barrier all_met(n);  // a rank that still connects when another fails would throw elsewhere
      const std::string cause = on_ranks(n, [&](ProcessGroup& g) {
        all_met.arrive_and_wait();
        try {
          if (g.rank() == 1) c.rank1(g);
          else g.all_reduce(filled({10}, 1)).wait();
        } catch (const CommError& e) {
          told += std::string(e.what()).find("the ranks make different calls") != std::string::npos;
          expect(message_of<CommError>([&] { g.barrier().wait(); }) == e.what(),
                 "every later call throws the same cause");
          throw;
        }
      });
      if (!c.theirs) continue;  // the threads transport has one algorithm for both
      EXPECT_NE(cause.find(c.theirs), std::string::npos) << c.name << ": " << cause;
      EXPECT_NE(cause.find("all_reduce #1 (sum, f32, 10 elements)"), std::string::npos) << c.name << ": " << cause;
      EXPECT_EQ(told.load(), n * int(std::size(kThreadWorlds))) << c.name;
    }
}

TEST(ProcessGroup, AnExceptionOnOneRankEndsAll) {
  std::atomic<int> ended{0};
  const std::string cause = on_ranks(4, [&](ProcessGroup& g) {
    const Tensor y = filled({100}, 1);
    for (int step = 0; step < 3; ++step) {
      if (g.rank() == 2 && step == 2) throw ShapeError("rank 2 saw a bad image");
      try {
        g.all_reduce(y).start().wait();
      } catch (const CommError& e) {
        ended += std::string(e.what()) == "rank 2 saw a bad image";
        throw;
      }
    }
  });
  EXPECT_EQ(cause, "rank 2 saw a bad image");
  EXPECT_EQ(ended.load(), 3 * int(std::size(kThreadWorlds)));
}

TEST(ProcessGroup, ADeadlineNamesWhoIsWaitedFor) {
  std::atomic<bool> over{false};
  const std::string cause = kThreadWorlds[0].open(3, 1, Seconds(0.3), [&](std::unique_ptr<Transport> t) {
    ProcessGroup g(std::move(t));
    g.barrier().wait();
    if (g.rank() == 2) {
      while (!g.transport().context().failure->raised()) std::this_thread::yield();
      over = true;
      g.barrier().wait();
    }
    g.all_reduce(filled({100}, 1)).wait();
  });
  EXPECT_TRUE(over.load());
  EXPECT_NE(cause.find("waited 0.3 s for rank"), std::string::npos) << cause;
  EXPECT_NE(cause.find("all_reduce #2 (sum, f32, 100 elements) over threads"), std::string::npos) << cause;
}

TEST(ProcessGroup, DeterministicSumsAreInTheOrderOfTheRanks) {
  for (const int n : {2, 5})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& g) {
      g.set_deterministic(true);
      const auto value = [](int rank, int i) { return float(std::sin(rank * 100 + i) * (rank % 2 ? 1e4 : 1e-3)); };
      const Tensor y = g.allocate({501}, DType::f32);
      expect_all(y, 0, "allocate");
      for (int i = 0; i < 501; ++i) y.data<float>()[i] = value(g.rank(), i);
      g.all_reduce(y).wait();
      for (int i = 0; i < 501; ++i) {
        float sum = value(0, i);
        for (int r = 1; r < n; ++r) sum += value(r, i);
        expect(y.data<float>()[i] == sum, concat("element ", i));
      }
    }));
}

TEST(ProcessGroup, AWriteIsNoticedByAutograd) {
  EXPECT_SILENT(on_ranks(1, [](ProcessGroup& g) {
    const Tensor y = filled({2}, 1);
    const uint32_t before = y.storage()->version();
    g.all_reduce(y).wait();
    expect(y.storage()->version() == before + 1 && std::string(y.storage()->last_writer()) == "all_reduce", "version");
  }));
}

TEST(Choice, Table) {
  constexpr Transport::Abilities shm{.shares_memory = true}, tcp{};
  const auto chosen = [](Transport::Abilities transport, int ranks, Collective kind, int64_t bytes, int island = 1,
                         bool deterministic = false) {
    return std::string(
        Choice(transport, ranks, island)({.kind = kind, .dtype = DType::u8, .count = bytes}, deterministic).name);
  };
  EXPECT_EQ(chosen(shm, 4, Collective::all_reduce, 1 << 20), "direct");
  EXPECT_EQ(chosen(tcp, 8, Collective::all_reduce, 1000), "doubling");
  EXPECT_EQ(chosen(tcp, 8, Collective::all_reduce, 1 << 20), "halving_doubling");
  EXPECT_EQ(chosen(tcp, 8, Collective::all_reduce, 64 << 20), "ring");
  EXPECT_EQ(chosen(tcp, 2, Collective::all_reduce, 1 << 20), "ring");
  EXPECT_EQ(chosen(tcp, 1000, Collective::all_reduce, 1 << 20), "double_tree");
  EXPECT_EQ(chosen(tcp, 1000, Collective::all_reduce, 64 << 20), "ring");
  EXPECT_EQ(chosen(tcp, 1024, Collective::all_reduce, 64 << 20), "halving_doubling");
  EXPECT_EQ(chosen(tcp, 8, Collective::broadcast, 1000), "tree");
  EXPECT_EQ(chosen(tcp, 8, Collective::broadcast, 1 << 20), "double_tree");
  EXPECT_EQ(chosen(tcp, 8, Collective::broadcast, 64 << 20), "ring");
  EXPECT_EQ(chosen(tcp, 2, Collective::reduce, 1 << 20), "ring");
  EXPECT_EQ(chosen(tcp, 16, Collective::all_reduce, 64 << 20, 4), "two_level");
  EXPECT_EQ(chosen(tcp, 16, Collective::all_reduce, 64 << 20, 16), "double_tree");
  EXPECT_EQ(chosen(tcp, 4, Collective::all_reduce, 4 << 20, 4), "double_tree");
  EXPECT_EQ(chosen(tcp, 4, Collective::all_reduce, 1 << 20, 4), "halving_doubling");
  EXPECT_EQ(chosen(tcp, 2, Collective::all_reduce, 1 << 20, 2), "ring");
  EXPECT_EQ(chosen(tcp, 8, Collective::all_reduce, 64 << 20, 1, true), "fixed_order");
  EXPECT_EQ(chosen(shm, 8, Collective::all_reduce, 64 << 20, 1, true), "direct");
  for (const auto& transport : {shm, tcp})
    for (const int n : {1, 2, 3, 8, 1000})
      for (int kind = 0; kind < 9; ++kind)
        for (const int64_t bytes : {int64_t(0), int64_t(1), int64_t(1) << 20, int64_t(1) << 40}) {
          const Operation op{.kind = Collective(kind), .count = bytes};
          EXPECT_NE(Choice(transport, n, 1)(op, false).of(op.kind), nullptr);
          EXPECT_NE(Choice(transport, n, 1)(op, true).of(op.kind), nullptr);
        }
}

TEST(Choice, Overrides) {
  const auto chosen = [](const char* text, int64_t bytes) {
    return std::string(
        Choice({}, 4, 1, text)({.kind = Collective::all_reduce, .dtype = DType::u8, .count = bytes}, false).name);
  };
  EXPECT_EQ(chosen("ring:0-64K;direct:64K-", 65535), "ring");
  EXPECT_EQ(chosen("ring:0-64K;direct:64K-", 65536), "direct");
  EXPECT_EQ(chosen("tree:1M-2M", 3 << 20), "ring");
  EXPECT_EQ(chosen("tree", 5), "tree");
  for (const auto& [text, message] : std::vector<std::pair<const char*, const char*>>{
           {"rind:0-", "RINGTAPE_ALLREDUCE=rind:0-: unknown algorithm of all_reduce 'rind'; did you mean ring?"},
           {"pairwise", "unknown algorithm of all_reduce 'pairwise'"},
           {"ring:64",
            "'64' is not a range of bytes; expected algorithms and ranges of bytes, as in ring:0-64K;direct:64K-"},
           {"ring:0-64Q", "'64Q' is not a number of bytes"},
           {"ring:-5", "'' is not a number of bytes"},
           {"ring:8K-8K", "the range '8K-8K' is empty"},
           {"ring:0-99999999999999999999", "is not a number of bytes"},
           {";", "unknown algorithm of all_reduce ''"}})
    EXPECT_NE(message_of<UsageError>([&, text = text] { Choice({}, 4, 1, text); }).find(message), std::string::npos)
        << text;
}

}  // namespace
}  // namespace ringtape::comm
