// The transport over NCCL, and NCCL's collectives, with ranks that are threads, each with its own GPU.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/algorithm.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "comm/transport/transports.h"
#include "core/runtime.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "tests/support/cuda_support.h"
#include "tests/support/gpu_ranks.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape::comm {
namespace {

using ringtape::test::kCuda;
using ringtape::test::values;

int most_ranks() { return std::min(4, runtime(kCuda).device_count()); }

// Runs f(group) on n ranks. Returns why they failed, or nothing.
template <class F> std::string on_groups(int n, F&& f, Seconds timeout = Seconds(30), const char* transport = "nccl") {
  return test::run_threads(n, 1, timeout, [&](const Context& context) {
    const Device device{DeviceType::cuda, context.rank};
    ProcessGroup group(make_transport(transport, context, device));
    f(group);
  });
}

class CudaNccl : public testing::Test {
 protected:
  void SetUp() override {
#if defined(RINGTAPE_EMULATION_BUILD)
    emulation::set_gpu({.devices = 4});
#endif
    RT_NEEDS_CUDA();
    if (!nccl_transport) GTEST_SKIP() << "this build has no NCCL";
    if (most_ranks() < 2) GTEST_SKIP() << "NCCL needs two GPUs";
  }
};

Device device_of(const ProcessGroup& group) { return group.transport().device(); }

// Small whole numbers, so that sums and products are exact in every dtype and order.
double made(int rank, int64_t i) { return double((3 * rank + i) % 5); }
Tensor numbers(int64_t count, int rank, DType dtype, Device device) {
  Tensor x({count});
  for (int64_t i = 0; i < count; ++i) x.data<float>()[i] = float(made(rank, i));
  return to(cast(x, dtype), device);
}
double combined(ReduceOp op, int n, int64_t i, DType dtype) {
  double y = made(0, i);
  for (int r = 1; r < n; ++r) {
    const double x = made(r, i);
    y = op == ReduceOp::max       ? std::max(y, x)
        : op == ReduceOp::min     ? std::min(y, x)
        : op == ReduceOp::product ? y * x
                                  : y + x;
  }
  if (op != ReduceOp::avg) return y;
  return is_float(dtype) ? y / n : double(int64_t(y) / n);
}

void expect(const Tensor& y, const std::function<double(int64_t)>& want, const std::string& what,
            double tolerance = 0) {
  const std::vector<double> all = values(y);
  for (size_t i = 0; i < all.size(); ++i)
    RT_CHECK(std::abs(all[i] - want(int64_t(i))) <= tolerance, what, ": element ", i, " of ", all.size(), " is ",
             all[i], ", expected ", want(int64_t(i)));
}

constexpr DType kDTypes[] = {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product};

void sums(ProcessGroup& group, DType dtype, ReduceOp op, int64_t c) {
  const Device device = device_of(group);
  const int n = group.size(), r = group.rank();
  const auto want = [&](int64_t i) { return combined(op, n, i, dtype); };
  const std::string what = concat(op, " of ", dtype);
  const double near = op != ReduceOp::avg ? 0 : dtype == DType::bf16 ? 0.02 : dtype == DType::f16 ? 0.003 : 1e-6;
  const auto empty = [&] { return full({c}, 77, dtype, device); };

  const Tensor x = numbers(c, r, dtype, device), in_place = numbers(c, r, dtype, device), y = empty();
  group.all_reduce(in_place, op).wait();
  expect(in_place, want, what + ", all_reduce in place", near);
  group.all_reduce(y, x, op).wait();
  expect(y, want, what + ", all_reduce", near);
  expect(
      x, [&](int64_t i) { return made(r, i); }, "x");

  const Tensor xs = numbers(n * c, r, dtype, device), part = empty();
  const auto want_part = [&](int64_t i) { return want(r * c + i); };
  group.reduce_scatter(part, xs, op).wait();
  expect(part, want_part, what + ", reduce_scatter", near);
  const Tensor own = xs.window({c}, {1}, r * c);
  group.reduce_scatter(own, xs, op).wait();
  expect(own, want_part, what + ", reduce_scatter in place", near);

  for (int root = 0; root < n; ++root) {
    const Tensor result = r == root ? empty() : Tensor();
    group.reduce(result, x, root, op).wait();
    if (r == root) expect(result, want, what + ", reduce", near);
  }
}

void moves(ProcessGroup& group, DType dtype, int64_t c) {
  const Device device = device_of(group);
  const int n = group.size(), r = group.rank();
  const Tensor x = numbers(c, r, dtype, device), xs = numbers(n * c, r, dtype, device);
  const auto empty = [&](int64_t count) { return full({count}, 77, dtype, device); };
  const auto gathered = [&](int64_t i) { return made(int(i / c), i % c); };
  const std::string what = concat(dtype);

  const Tensor all = empty(n * c), in_place = empty(n * c), part = empty(c);
  group.all_gather(all, x).wait();
  expect(all, gathered, what + ", all_gather");
  const Tensor own = in_place.window({c}, {1}, r * c);
  copy(own, x);
  group.all_gather(in_place, own).wait();
  expect(in_place, gathered, what + ", all_gather in place");
  const auto exchanged = [&](int64_t i) { return made(int(i / c), r * c + i % c); };
  group.all_to_all(all, xs).wait();
  expect(all, exchanged, what + ", all_to_all");
  const Tensor both = numbers(n * c, r, dtype, device);
  group.all_to_all(both, both).wait();
  expect(both, exchanged, what + ", all_to_all in place");
  for (int root = 0; root < n; ++root) {
    const Tensor shown = numbers(c, r, dtype, device);
    group.broadcast(shown, root).wait();
    expect(
        shown, [&](int64_t i) { return made(root, i); }, what + ", broadcast");
    group.gather(r == root ? all : Tensor(), x, root).wait();
    if (r == root) expect(all, gathered, what + ", gather");
    group.scatter(part, r == root ? xs : Tensor(), root).wait();
    expect(
        part, [&](int64_t i) { return made(root, r * c + i); }, what + ", scatter");
  }
  group.barrier().wait();
}

TEST_F(CudaNccl, EveryCollective) {
  for (int n = 1; n <= most_ranks(); ++n)
    EXPECT_SILENT(on_groups(n,
                            [](ProcessGroup& group) {
                              EXPECT_EQ(group.transport().name(), "nccl");
                              for (const DType dtype : kDTypes) {
                                for (const ReduceOp op : kOps) sums(group, dtype, op, 7);
                                moves(group, dtype, 7);
                              }
                              sums(group, DType::f32, ReduceOp::sum, 1009);
                              moves(group, DType::f32, 1009);
                              moves(group, DType::b8, 0);
                            }))
        << n << " ranks";
}

// Nothing of a rank's, of all but one, and of all.
TEST_F(CudaNccl, PartsOfAnySize) {
  for (int n = 1; n <= most_ranks(); ++n)
    EXPECT_SILENT(on_groups(
        n,
        [n](ProcessGroup& group) {
          const int r = group.rank();
          std::vector<std::vector<int64_t>> all_cuts{{0}, {0}, {0}, {0}};
          for (int i = 0; i < n; ++i) {
            all_cuts[0].push_back(all_cuts[0].back() + 5 * i + 3);
            all_cuts[1].push_back(all_cuts[1].back() + 4 * (i % 2));
            all_cuts[2].push_back(i + 1 == n ? 9 : 0);
            all_cuts[3].push_back(0);
          }
          for (const auto& list : all_cuts)
            for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
              const auto cuts = std::make_shared<const std::vector<int64_t>>(list);
              const int64_t begin = list[size_t(r)], end = list[size_t(r) + 1];
              const auto part = [&](const Tensor& all) { return all.window({end - begin}, {1}, begin); };
              for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
                const Tensor all = numbers(list.back(), r, dtype, device_of(group));
                group.reduce_scatter(all, cuts, op).wait();
                expect(
                    part(all), [&](int64_t i) { return combined(op, n, begin + i, dtype); }, "reduce_scatter");
              }
              const Tensor all = full({list.back()}, 77, dtype, device_of(group));
              copy(part(all), part(numbers(list.back(), 0, dtype, device_of(group))));
              group.all_gather(all, cuts).wait();
              expect(
                  all, [](int64_t i) { return made(0, i); }, "all_gather");
            }
        }))
        << n << " ranks";
}

// Every algorithm sends over NCCL, too.
TEST_F(CudaNccl, CarriesEveryAlgorithm) {
  for (int n = 2; n <= most_ranks(); ++n)
    EXPECT_EQ(
        test::run_threads(
            n, 1, Seconds(30),
            [n](const Context& context) {
              const Device device{DeviceType::cuda, context.rank};
              const auto t = nccl_transport(context, device);
              uint64_t sequence = 0;
              for (const Algorithm* a : algorithms())
                for (const int64_t count : {0, 1, 2, 1009, 70001}) {
                  if (!a->all_reduce || std::string_view(a->name) == "direct") continue;
                  const Tensor y = numbers(count, t->rank(), DType::f32, device);
                  t->begin(
                      {.kind = Collective::all_reduce, .dtype = DType::f32, .count = count, .sequence = ++sequence},
                      Deadline(Seconds(30)));
                  a->all_reduce(*t, View(y).data, View(y).data);
                  t->reached()->wait();
                  expect(
                      y, [&](int64_t i) { return combined(ReduceOp::sum, n, i, DType::f32); }, a->name);
                }
            }),
        "")
        << n << " ranks";
}

// What the caller's stream does before and after is not waited for on the host.
TEST_F(CudaNccl, FollowsTheCallersStreamAndIsFollowed) {
  EXPECT_SILENT(on_groups(2, [](ProcessGroup& group) {
    const Device device = device_of(group);
    std::vector<Work> works;
    Tensors sums;
    for (int i = 0; i < 3; ++i) {
      const Tensor y = full({1000}, group.rank() + i, DType::f32, device) * 2 + 1;
      works.push_back(group.all_reduce(y));
      if (i % 2 == 0) works.back().start();
      sums.push_back(y);
      group.all_reduce(full({500}, 1, DType::f32, device)).wait();
    }
    for (int i = 0; i < 3; ++i) {
      works[size_t(i)].wait();
      expect(
          sums[size_t(i)] * 3, [&](int64_t) { return 3.0 * (2 * (1 + 2 * i) + 2); }, "sum");
    }
  }));
}

// Two communicators at once, one of them of a part of the ranks, destroyed in another order on each rank.
TEST_F(CudaNccl, GroupsOfGroups) {
  for (int n = 2; n <= most_ranks(); ++n)
    EXPECT_SILENT(on_groups(n,
                            [n](ProcessGroup& group) {
                              const Device device = device_of(group);
                              auto half = group.split(group.rank() % 2, -group.rank()),
                                   whole = group.split(0, group.rank());
                              EXPECT_EQ(half->transport().name(), "nccl");
                              const Tensor a = full({10}, 1, DType::f32, device), b = full({10}, 1, DType::f32, device);
                              const Work first = half->all_reduce(a).start(), second = whole->all_reduce(b).start();
                              second.wait(), first.wait();
                              expect(
                                  a, [&](int64_t) { return half->size(); }, "half");
                              expect(
                                  b, [&](int64_t) { return n; }, "whole");
                              if (n == 2 && group.rank() == 1) whole.reset();
                              half.reset();
                            }))
        << n << " ranks";
}

// Its wait() is the host's, too.
TEST_F(CudaNccl, ABarrierWaitsForAllRanks) {
  std::atomic<int> come{0};
  EXPECT_SILENT(on_groups(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(Seconds(0.05));
    ++come;
    group.barrier().wait();
    RT_CHECK_EQ(come.load(), 2);
  }));
}

std::vector<double> trained(const char* transport, int n, bool deterministic, bool graph = false) {
  std::vector<double> out;
  EXPECT_SILENT(on_groups(
      n,
      [&](ProcessGroup& group) {
        std::vector<double> all = ringtape::test::weights_after_steps(group, deterministic, graph);
        if (group.rank() == 0) out = std::move(all);
      },
      Seconds(60), transport));
  return out;
}

TEST_F(CudaNccl, TrainsAsOverP2p) {
  for (int n = 2; n <= std::min(3, most_ranks()); ++n) {
    const std::vector<double> in_order = trained("p2p", n, true);
    EXPECT_EQ(in_order.size(), size_t(ringtape::test::kWeightsOfSteps));
    for (const bool graph : {false, true})
      EXPECT_TRUE(trained("nccl", n, true, graph) == in_order) << n << " ranks" << (graph ? ", with a graph" : "");
    const std::vector<double> any_order = trained("nccl", n, false);
    ASSERT_EQ(any_order.size(), in_order.size());
    for (size_t i = 0; i < in_order.size(); ++i) ASSERT_NEAR(any_order[i], in_order[i], 1e-5) << "at " << i;
  }
}

TEST_F(CudaNccl, IsAutomaticForRanksWithAGpuEach) {
  EXPECT_SILENT(on_groups(
      2,
      [](ProcessGroup& group) {
        EXPECT_EQ(group.transport().name(), "nccl");
        const Tensor y = full({10}, 1, DType::f32, device_of(group));
        group.all_reduce(y).wait();
        expect(
            y, [](int64_t) { return 2; }, "sum");
      },
      Seconds(30), "auto"));
}

TEST_F(CudaNccl, AlgorithmOfNoOtherTransport) {
  EXPECT_MENTIONS(
      test::run_threads(1, 1, Seconds(20),
                        [](const Context& context) {
                          const auto t = p2p_transport(context, kCuda);
                          const Tensor y = full({10}, 1, DType::f32, kCuda);
                          t->begin({.kind = Collective::all_reduce, .dtype = DType::f32, .count = 10, .sequence = 1},
                                   Deadline(Seconds(20)));
                          nccl_algorithm->all_reduce(*t, View(y).data, View(y).data);
                        }),
      "the algorithm 'nccl' runs over the transport 'nccl', not over p2p");
}

}  // namespace
}  // namespace ringtape::comm
