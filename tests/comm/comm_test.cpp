// Collectives: every algorithm, over every transport that this machine has.
#include <cmath>
#include <cstring>
#include <random>

#include "comm/algorithm.h"
#include "kernels/combine.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using test::kWorlds;
using test::World;

constexpr int64_t kPrime = 1009;
constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product};

// Small whole numbers, so that the result is exact in every dtype and any order of the sum.
double input(ReduceOp op, int rank, int64_t i) {
  return op == ReduceOp::product ? ((i + rank) % 8 == 0 ? 2 : 1) : double((7 * rank + 3 * i + i / 5) % 4);
}

// The combination of element i of the buffers of ranks 0 .. ranks - 1.
template <class T> T combined(ReduceOp op, int ranks, int64_t i) {
  double y = input(op, 0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = input(op, r, i);
    y = op == ReduceOp::max       ? std::max(y, x)
        : op == ReduceOp::min     ? std::min(y, x)
        : op == ReduceOp::product ? y * x
                                  : y + x;
  }
  using C = compute_t<T>;
  if (op != ReduceOp::avg) return T(C(y));
  if constexpr (std::is_integral_v<T>) return T(int64_t(y) / ranks);
  else return T(C(y) * C(1.0 / ranks));
}

// The sizes of x and y in counts, and the expected element i of y. A rank without a result compares nothing.
struct Expectation {
  int x, y;
  bool result = true;
};
Expectation expectation(const Operation& op, int rank, int n) {
  const bool root = rank == op.root;
  switch (op.kind) {
    case Collective::barrier: return {0, 0};
    case Collective::reduce_scatter: return {n, 1};
    case Collective::all_gather: return {1, n};
    case Collective::broadcast: return {1, 1};
    case Collective::reduce: return {1, 1, root};
    case Collective::gather: return {1, n, root};
    case Collective::scatter: return {n, 1};
    case Collective::all_to_all: return {n, n};
    default: return {1, 1};
  }
}
template <class T> T expected(const Operation& op, int rank, int n, int64_t i) {
  using C = compute_t<T>;
  const int64_t c = std::max<int64_t>(op.count, 1);
  switch (op.kind) {
    case Collective::reduce_scatter: return combined<T>(op.op, n, rank * c + i);
    case Collective::all_gather:
    case Collective::gather: return T(C(input(op.op, int(i / c), i % c)));
    case Collective::broadcast: return T(C(input(op.op, op.root, i)));
    case Collective::scatter: return T(C(input(op.op, op.root, rank * c + i)));
    case Collective::all_to_all: return T(C(input(op.op, int(i / c), rank * c + i % c)));
    default: return combined<T>(op.op, n, i);
  }
}

// Elements between guards, in memory from the heap or from the transport.
template <class T> class Buffer {
 public:
  Buffer(Transport& t, int64_t count, bool of_transport) : count_(count) {
    if (of_transport) memory_ = t.allocate(size_t(count + 2 * kGuard) * sizeof(T));
    else
      memory_ = std::shared_ptr<void>(::operator new(size_t(count + 2 * kGuard) * sizeof(T)),
                                      [](void* p) { ::operator delete(p); });
    std::memset(memory_.get(), 0x5a, size_t(count + 2 * kGuard) * sizeof(T));
  }
  T* data() { return static_cast<T*>(memory_.get()) + kGuard; }
  bool guarded() {
    const auto* bytes = static_cast<const unsigned char*>(memory_.get());
    for (size_t i = 0; i < kGuard * sizeof(T); ++i)
      if (bytes[i] != 0x5a || bytes[size_t(count_ + kGuard) * sizeof(T) + i] != 0x5a) return false;
    return true;
  }

 private:
  static constexpr int64_t kGuard = 8;
  int64_t count_;
  std::shared_ptr<void> memory_;
};

template <class T>
void run_case(Transport& t, const Algorithm& algorithm, const Operation& op, bool in_place, bool of_transport) {
  const int r = t.rank(), n = t.size();
  const std::string what =
      concat(algorithm.name, ": ", op, in_place ? " in place" : "", ", ", n, " ranks over ", t.name(), ", rank ", r);
  const Expectation e = expectation(op, r, n);
  const bool gives = (op.kind != Collective::scatter && op.kind != Collective::broadcast) || r == op.root;
  in_place = in_place || op.kind == Collective::broadcast;
  Buffer<T> xs(t, op.count * e.x, of_transport), ys(t, op.count * e.y, of_transport);
  T *x = xs.data(), *y = ys.data();
  if (in_place) {
    if (e.x > e.y) y = x + op.count * r;
    else if (e.y > e.x && e.result) x = y + op.count * r;
    else if (e.result) y = x;
  }
  for (int64_t i = 0; gives && i < op.count * e.x; ++i) x[i] = T(compute_t<T>(input(op.op, r, i)));
  t.begin(op, Deadline(t.context().timeout));
  algorithm.of(op.kind)(t, gives ? x : nullptr, e.result ? y : nullptr);
  for (int64_t i = 0; e.result && i < op.count * e.y; ++i) {
    const T want = expected<T>(op, r, n, i);
    if (std::memcmp(&want, &y[i], sizeof(T)) != 0)
      throw CommError(
          concat(what, ": element ", i, " is ", double(compute_t<T>(y[i])), ", expected ", double(compute_t<T>(want))));
  }
  for (int64_t i = 0; gives && !in_place && i < op.count * e.x; ++i)
    if (double(compute_t<T>(x[i])) != input(op.op, r, i))
      throw CommError(concat(what, ": wrote to its input at element ", i));
  if (!xs.guarded() || !ys.guarded()) throw CommError(concat(what, ": wrote beside its buffers"));
}

void run_case(Transport& t, const Algorithm& algorithm, const Operation& op, bool in_place, bool of_transport) {
  dispatch(op.dtype, [&]<class T>() { run_case<T>(t, algorithm, op, in_place, of_transport); });
}

// Runs f(algorithm, collective) for all combinations.
template <class F> void each_collective(F&& f) {
  for (const Algorithm* algorithm : algorithms())
    for (int kind = 0; kind < 9; ++kind)
      if (algorithm->of(Collective(kind))) f(*algorithm, Collective(kind));
}

// Runs f with each number of ranks in each world that allows this number.
void in_all_worlds(std::initializer_list<int> ranks, const test::RankFn& f) {
  for (const World& world : kWorlds)
    for (const int n : ranks)
      if (n <= world.most_ranks) {
        EXPECT_EQ(world.run(n, test::island_of(n), Seconds(60), f), "") << world.name << ", " << n << " ranks";
      }
}

// Every algorithm, collective, number of ranks and count, in and out of place; each time with another combination of
// dtype, operation, root and kind of memory (tests below cover all of these); with more than 9 ranks either in or out
// of place.
void ranks_and_counts(Transport& t) {
  const int n = t.size();
  uint64_t sequence = 0;
  each_collective([&](const Algorithm& algorithm, Collective kind) {
    for (const int64_t count : {int64_t(0), int64_t(1), int64_t(n - 1), int64_t(n), int64_t(n + 1), kPrime})
      for (const bool in_place : {false, true}) {
        if (n > 9 && in_place == (count % 2 == 0)) continue;
        const size_t turn = ++sequence + 5 * size_t(n);
        run_case(t, algorithm,
                 {.kind = kind,
                  .dtype = kDTypes[turn % 7],
                  .op = kOps[turn % 5],
                  .root = int(turn / 3) % n,
                  .count = count,
                  .sequence = sequence,
                  .algorithm = algorithm.id()},
                 in_place, turn / 2 % 2 == 1);
      }
  });
}

TEST(Comm, RanksAndCounts) { in_all_worlds({1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}, ranks_and_counts); }

void dtypes_and_operations(Transport& t) {
  uint64_t sequence = 0;
  each_collective([&](const Algorithm& algorithm, Collective kind) {
    for (const DType dtype : kDTypes)
      for (const ReduceOp op : kOps) {
        ++sequence;
        run_case(t, algorithm, {.kind = kind, .dtype = dtype, .op = op, .root = 1, .count = 13, .sequence = sequence},
                 sequence % 2 == 0, sequence % 3 == 0);
      }
  });
}

TEST(Comm, DTypesAndOperations) { in_all_worlds({3, 4}, dtypes_and_operations); }

// Messages of many pieces: a ring of two ranks has six pieces per part.
void large_buffers(Transport& t) {
  const int64_t count = (t.size() == 2 ? 5 << 16 : 1 << 17) + 1;
  uint64_t sequence = 0;
  each_collective([&](const Algorithm& algorithm, Collective kind) {
    if (kind == Collective::barrier) return;
    ++sequence;
    run_case(t, algorithm, {.kind = kind, .dtype = DType::f32, .root = 1, .count = count, .sequence = sequence},
             sequence % 2 == 0, sequence % 3 == 0);
  });
}

TEST(Comm, LargeBuffers) { in_all_worlds({2, 3, 4}, large_buffers); }

// The same over MPI; mpirun starts the ranks.
TEST(CommMpi, DISABLED_Rank) {
  ringtape::test::as_mpi_rank(Seconds(60), [](Context context) {
    context.island = test::island_of(context.size);
    const auto t = make_transport("mpi", context);
    ranks_and_counts(*t);
    if (context.size > 1) dtypes_and_operations(*t);
    if (context.size > 1 && context.size <= 4) large_buffers(*t);
  });
}

TEST(CommMpi, WorksUnderMpirun) {
  if (!ringtape::test::has_mpirun()) GTEST_SKIP() << "there is no mpirun (apt-get install openmpi-bin)";
  for (const int n : {1, 2, 3, 4, 8}) ringtape::test::run_under_mpirun(n, "CommMpi");
}

// No rank leaves a barrier before all have come. (Ranks that are processes do not share the counter, so their worlds
// skip this.)
TEST(Comm, BarrierWaitsForAll) {
  for (const int n : {2, 3, 5, 8}) {
    std::atomic<int> arrived{0};
    const std::string cause = kWorlds[0].run(n, 1, Seconds(60), [&](Transport& t) {
      uint64_t sequence = 0;
      for (const Algorithm* algorithm : algorithms())
        for (int round = 0; algorithm->barrier && round < 20; ++round) {
          arrived.fetch_add(1);
          t.begin({.sequence = ++sequence}, Deadline(Seconds(60)));
          algorithm->barrier(t, nullptr, nullptr);
          if (arrived.load() < int(sequence) * n)
            throw CommError(concat(algorithm->name, ": left a barrier that not all had entered"));
        }
    });
    EXPECT_EQ(cause, "");
  }
}

// Algorithms that promise to sum in the order of the ranks give the bits of a sum in that order, with any data.
TEST(Comm, FixedOrderIsBitwise) {
  const auto value = [](int rank, int64_t i) {
    return float(std::sin(double(rank * 1000 + i)) * std::exp2(double((rank * 5 + i) % 20)));
  };
  in_all_worlds({2, 3, 7, 17}, [&](Transport& t) {
    const int n = t.size();
    uint64_t sequence = 0;
    for (const char* name : {"fixed_order", "direct"})
      for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
        dispatch_float(sequence % 2 ? DType::f32 : DType::bf16, [&]<class T>() {
          using C = compute_t<T>;
          const Operation op{.kind = kind,
                             .dtype = dtype_of<T>::value,
                             .op = ReduceOp::avg,
                             .root = n - 1,
                             .count = kPrime,
                             .sequence = ++sequence};
          const int64_t begin = kind == Collective::reduce_scatter ? t.rank() * kPrime : 0;
          std::vector<T> x(size_t(kPrime * (kind == Collective::reduce_scatter ? n : 1))),
              y(static_cast<size_t>(kPrime));
          for (size_t i = 0; i < x.size(); ++i) x[i] = T(C(value(t.rank(), int64_t(i))));
          t.begin(op, Deadline(Seconds(60)));
          find_algorithm(name).of(kind)(t, x.data(), y.data());
          if (kind == Collective::reduce && t.rank() != n - 1) return;
          for (int64_t i = 0; i < kPrime; ++i) {
            C sum = C(T(C(value(0, begin + i))));
            for (int r = 1; r < n; ++r) sum += C(T(C(value(r, begin + i))));
            const T want = T(sum * C(1.0 / n));
            if (std::memcmp(&want, &y[size_t(i)], sizeof(T)) != 0)
              throw CommError(concat(name, ": ", op, " differs at element ", i));
          }
        });
  });
}

// The other algorithms at least give the same result on all ranks.
TEST(Comm, RanksAgreeBitwise) {
  in_all_worlds({2, 3, 6, 8}, [](Transport& t) {
    uint64_t sequence = 0;
    for (const Algorithm* algorithm : algorithms()) {
      if (!algorithm->all_reduce) continue;
      std::vector<float> x(static_cast<size_t>(kPrime)), first(x.size());
      for (size_t i = 0; i < x.size(); ++i) x[i] = float(std::sin(double(t.rank()) * 1000 + double(i)));
      t.begin({.kind = Collective::all_reduce, .dtype = DType::f32, .count = kPrime, .sequence = ++sequence},
              Deadline(Seconds(60)));
      algorithm->all_reduce(t, x.data(), x.data());
      first = x;
      t.begin({.kind = Collective::broadcast, .dtype = DType::f32, .count = kPrime, .sequence = ++sequence},
              Deadline(Seconds(60)));
      find_algorithm("tree").broadcast(t, nullptr, first.data());
      if (first != x) throw CommError(concat(algorithm->name, ": rank ", t.rank(), " has other bits than rank 0"));
    }
  });
}

// A transport whose share() gives copies, like a transport whose ranks can access only its own memory, or gives
// nothing.
class Sharing : public Transport {
 public:
  Sharing(std::unique_ptr<Transport> inner, bool copies)
      : Transport(inner->context()), inner_(std::move(inner)), copies_(copies) {}
  std::string_view name() const override { return copies_ ? "copies" : "nothing shared"; }
  std::unique_ptr<Transport> open(Context context) const override { return inner_->open(std::move(context)); }
  Ticket start(std::span<const Transfer> transfers) override { return inner_->start(transfers); }
  void finish(Ticket ticket) override { inner_->finish(ticket); }
  std::vector<void*> share(void* data, size_t bytes) override {
    if (!copies_) return {};
    copy_.assign(static_cast<char*>(data), static_cast<char*>(data) + bytes);
    return inner_->share(copy_.data(), bytes);
  }
  void fence() override { inner_->fence(); }

 private:
  void opened() override { inner_->begin(operation(), deadline()); }
  const std::unique_ptr<Transport> inner_;
  const bool copies_;
  std::vector<char> copy_;
};

TEST(Comm, DirectWhereMemoryIsNotReached) {
  for (const bool copies : {false, true})
    for (const int n : {1, 2, 3, 5}) {
      const std::string cause = test::run_threads(n, 1, Seconds(60), [&](Context context) {
        Sharing t(threads_transport(std::move(context)), copies);
        const Algorithm& direct = find_algorithm("direct");
        uint64_t sequence = 0;
        for (int kind = 0; kind < 9; ++kind)
          for (const int64_t count : {0, 1, 7, 1000})
            for (const bool in_place : {false, true})
              run_case(t, direct,
                       {.kind = Collective(kind),
                        .dtype = kDTypes[++sequence % 7],
                        .op = kOps[sequence % 5],
                        .root = n - 1,
                        .count = count,
                        .sequence = sequence},
                       in_place, false);
      });
      EXPECT_EQ(cause, "");
    }
}

// More ranks than one call of the combine kernel takes sources.
TEST(Comm, ManyRanks) {
  const int n = kMaxSources + 2;
  const std::string cause = kWorlds[0].run(n, 2, Seconds(60), [&](Transport& t) {
    uint64_t sequence = 0;
    for (const char* name : {"direct", "fixed_order"})
      for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
        run_case(t, find_algorithm(name),
                 {.kind = kind, .dtype = DType::i32, .root = n - 1, .count = 100, .sequence = ++sequence}, true, false);
  });
  EXPECT_EQ(cause, "");
}

TEST(Comm, EveryCollectiveHasAnAlgorithm) {
  for (int kind = 0; kind < 9; ++kind) {
    int offers = 0;
    for (const Algorithm* a : algorithms())
      offers += a->of(Collective(kind)) != nullptr && std::string_view(a->name) != "direct";
    EXPECT_GE(offers, 1) << name_of(Collective(kind));
  }
  EXPECT_NE(ringtape::test::message_of<UsageError>([] { find_algorithm("rind"); }).find("did you mean ring?"),
            std::string::npos);
}

}  // namespace
}  // namespace ringtape::comm
