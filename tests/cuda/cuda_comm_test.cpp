// Collectives on GPUs: their arithmetic, and ranks that are threads of one process.
#include <atomic>
#include <thread>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/algorithm.h"
#include "comm/parallel/parallel_apply.h"
#include "comm/parallel/reduction.h"
#include "comm/parallel/reduction/powersgd.h"
#include "comm/parallel/shuffle.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/runtime.h"
#include "kernels/combine.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "nn/nn.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape {
namespace {

using ringtape::test::kCuda;
using ringtape::test::same_bytes;

using CudaCombine = test::OnCuda;

Tensor numbers(int64_t n, DType dtype, uint64_t seed) {
  Tensor x({n}, DType::f32);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, dtype == DType::u8 ? 0.0 : -200.0, 200.0);
  return cast(x, dtype);
}

// The CPU's result and the GPU's have the same bits, whatever is aligned, and nothing after y is written.
void expect_same_combine(DType dtype, int64_t n, int count, int64_t offset, ReduceOp op, double factor, int into = -1) {
  SCOPED_TRACE(
      concat(op, " of ", count, " ", dtype, ", n ", n, ", offset ", offset, ", factor ", factor, ", into ", into));
  Sources host{}, device{};
  std::vector<Tensor> kept;
  for (int s = 0; s < count; ++s) {
    const Tensor x = numbers(n + offset, dtype, uint64_t(s) + 1), on_device = to(x, kCuda);
    host.data[host.count++] = View(x.window({n}, {1}, offset)).data;
    device.data[device.count++] = View(on_device.window({n}, {1}, offset)).data;
    kept.insert(kept.end(), {x, on_device});
  }
  const Tensor y({n}, dtype), whole = full({n + offset + 9}, 77, dtype, kCuda);
  const Tensor out = into < 0 ? whole.window({n}, {1}, offset) : kept[size_t(2 * into + 1)].window({n}, {1}, offset);
  combine(y, host, op, factor);
  combine(out, device, op, factor);
  EXPECT_TRUE(same_bytes(contiguous(to(out, Device{})), y));
  const std::vector<double> all = ringtape::test::values(whole);
  for (int64_t i = 0; i < int64_t(all.size()); ++i)
    if (into >= 0 || i < offset || i >= offset + n) {
      ASSERT_EQ(all[size_t(i)], 77) << "written outside, at " << i - offset;
    }
}

TEST_F(CudaCombine, IsThatOfTheCpu) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product})
      for (const int64_t n : {1, 31, 523})
        for (const int64_t offset : {0, 1})
          expect_same_combine(dtype, n, 3, offset, op, op == ReduceOp::avg ? 1.0 / 3 : 1);
}

TEST_F(CudaCombine, AnyNumberOfSourcesAndManyElements) {
  for (const int count : {1, 2, kMaxSources}) expect_same_combine(DType::f32, 100, count, 0, ReduceOp::sum, 0.5);
  expect_same_combine(DType::bf16, 300007, 2, 0, ReduceOp::sum, 1);
  expect_same_combine(DType::i32, 0, 2, 0, ReduceOp::sum, 1);
}

TEST_F(CudaCombine, IntoAnyOfItsSources) {
  for (const DType dtype : {DType::f32, DType::f16, DType::u8})
    for (int into = 0; into < 3; ++into) expect_same_combine(dtype, 523, 3, 0, ReduceOp::sum, 1, into);
}

}  // namespace
}  // namespace ringtape

namespace ringtape::comm {
namespace {

using ringtape::test::kCuda;
using ringtape::test::values;

// Runs f(transport), or f with the transport for it to keep, on n threads, a rank each; the devices there are take
// turns. Returns why they failed, or nothing.
template <class F> std::string on_gpus(int n, F&& f, Seconds timeout = Seconds(20)) {
  const int devices = runtime(kCuda).device_count();
  return test::run_threads(n, 1, timeout, [&](Context context) {
    const int rank = context.rank;
    auto transport = p2p_transport(std::move(context), {DeviceType::cuda, rank % devices});
    if constexpr (std::is_invocable_v<F, Transport&>) f(*transport);
    else f(std::move(transport));
  });
}

void begin(Transport& t, DType dtype, int64_t count, uint64_t sequence = 1) {
  t.begin({.kind = Collective::all_reduce, .dtype = dtype, .count = count, .sequence = sequence},
          Deadline(t.context().timeout));
}

// Whole numbers, so that sums are exact in any order.
Tensor contribution(int rank, int64_t count, DType dtype) {
  Tensor x({count});
  for (int64_t i = 0; i < count; ++i) x.data<float>()[i] = float(rank + int(i % 7));
  return cast(x, dtype);
}
void expect_sum(const Tensor& y, int n) {
  const std::vector<double> all = values(y);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], double(n * (n - 1) / 2 + n * int(i % 7))) << "at " << i;
}

// Each rank sums its part of all buffers in place, then fetches the others' parts.
void direct(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype);
  t.copy(y, x, op.bytes());
  const std::vector<void*> all = t.share(y, op.bytes());
  ASSERT_EQ(all.size(), size_t(t.size()));
  const Part own = part_of(op.count, t.size(), t.rank());
  std::vector<const void*> sources;
  for (void* p : all) sources.push_back(static_cast<char*>(p) + size_t(own.begin) * width);
  t.combine(static_cast<char*>(y) + size_t(own.begin) * width, sources, own.size());
  t.fence();
  for (int r = 0; r < t.size(); ++r) {
    const Part part = part_of(op.count, t.size(), r);
    const size_t at = size_t(part.begin) * width;
    if (r != t.rank())
      t.copy(static_cast<char*>(y) + at, static_cast<char*>(all[size_t(r)]) + at, size_t(part.size()) * width);
  }
  t.fence();
}

using CudaComm = ringtape::test::OnCuda;

TEST_F(CudaComm, AllReduceSumsOnAnyNumberOfRanks) {
  for (const CollectiveFn all_reduce : {find_algorithm("ring").all_reduce, CollectiveFn(direct)})
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32})
      for (const int n : {1, 2, 3, 4}) {
        const std::string cause = on_gpus(n, [&](Transport& t) {
          for (const int64_t count : {0, 1, n + 1, 1009}) {
            const Tensor x = to(contribution(t.rank(), count, dtype), t.device()), y({count}, dtype, t.device());
            begin(t, dtype, count, uint64_t(count) + 1);
            all_reduce(t, View(x).data, View(y).data);
            t.reached()->wait();
            expect_sum(y, n);
          }
        });
        EXPECT_EQ(cause, "") << n << " ranks, " << name_of(dtype);
      }
}

// What the caller's stream does before and after is not waited for on the host: only the moments order the streams.
TEST_F(CudaComm, TheCallersWorkIsFollowedAndWaitsForTheResult) {
  EXPECT_SILENT(on_gpus(4, [](Transport& t) {
    for (int step = 0; step < 5; ++step) {
      Tensor x = full({1009}, t.rank() + step, DType::f32, t.device());
      x = x * 2 + 1;
      const auto asked = t.asked();
      const Tensor later = x * 3;  // need not be done before
      t.follow(*asked);
      begin(t, DType::f32, 1009, uint64_t(step) + 1);
      find_algorithm("ring").all_reduce(t, View(x).data, View(x).data);
      const auto reached = t.reached();
      reached->wait();
      const Tensor y = x + 1;
      EXPECT_EQ(values(y), std::vector<double>(1009, 4.0 * (2 * step + 1) + 12 + 1));
      EXPECT_TRUE(reached->passed());
    }
  }));
}

// A group's work comes after what the caller has asked of the device, and what the caller asks after wait() comes after
// it; the work of several collectives may be in flight, and their memory be let go.
TEST_F(CudaComm, GroupsFollowAndAreFollowed) {
  for (const int n : {1, 2, 3}) {
    const std::string cause = on_gpus(n, [n](std::unique_ptr<Transport> transport) {
      const Device device = transport->device();
      ProcessGroup group(std::move(transport));
      const double sum = n * (n - 1) / 2.0;
      std::vector<Work> works;
      std::vector<Tensor> sums;
      for (int i = 0; i < 3; ++i) {
        const Tensor y = full({1000}, group.rank() + i, DType::f32, device);
        works.push_back(group.all_reduce(y));
        if (i % 2 == 0) works.back().start();
        sums.push_back(y);
        group.all_reduce(full({500}, 1, DType::f32, device)).wait();
      }
      for (int i = 0; i < 3; ++i) {
        works[size_t(i)].wait();
        const Tensor twice = add(sums[size_t(i)], sums[size_t(i)]);
        for (const double v : values(twice)) RT_CHECK_EQ(v, 2 * (sum + n * i));
      }
      const auto half = group.split(group.rank() % 2, 0);
      const Tensor ones = full({10}, 1, DType::f32, device);
      half->all_reduce(ones).wait();
      for (const double v : values(ones)) RT_CHECK_EQ(v, half->size());
    });
    EXPECT_EQ(cause, "") << n << " ranks";
  }
}

// Ranks' rows normalised together, one rank having none, as one layer on the CPU normalises the whole batch.
TEST_F(CudaComm, SynchronisedBatchNorm) {
  const int64_t bounds[] = {0, 3, 3, 8};
  const Shape whole{8, 2, 3, 5};
  const auto drawn = [&](uint64_t seed) {
    Tensor x(whole, DType::f64);
    fill_uniform(x, RandomState{seed, Stream::test, 0}, -1, 3);
    return x;
  };
  const auto follow = [&](Device device, ProcessGroup* group, int64_t begin, int64_t end) {
    nn::BatchNorm layer(5);
    nn::cast_to(layer, DType::f64), nn::move_to(layer, device);
    layer.synchronize(group);
    const auto part = [&](uint64_t seed) { return to(contiguous(slice(drawn(seed), 0, begin, end)), device); };
    const Tensor x = leaf(part(1)), z = leaf(part(2)), y = layer(x, Activation::relu, z);
    backward(y, part(3));
    Tensors all{y.detach(),         grad(x), grad(z), grad(layer.weight), grad(layer.bias), layer.running().mean,
                layer.running().var};
    for (Tensor& t : all) t = to(t, Device{});
    return all;
  };
  std::vector<Tensors> ranks(3);
  ASSERT_EQ(on_gpus(3,
                    [&](std::unique_ptr<Transport> transport) {
                      const Device device = transport->device();
                      ProcessGroup group(std::move(transport));
                      const auto r = size_t(group.rank());
                      ranks[r] = follow(device, &group, bounds[r], bounds[r + 1]);
                    }),
            "");
  const Tensors one = follow(Device{}, nullptr, 0, 8);
  for (size_t i = 0; i < one.size(); ++i) {
    const Tensors parts{ranks[0][i], ranks[1][i], ranks[2][i]};
    const Tensor together = i < 3 ? concat(parts) : i < 5 ? parts[0] + parts[1] + parts[2] : parts[1];
    ringtape::test::expect_close(together, one[i], 1e-12, 1e-12, std::to_string(i));
  }
}

// Rows that change GPUs and come back.
TEST_F(CudaComm, Shuffle) {
  EXPECT_SILENT(on_gpus(3, [](std::unique_ptr<Transport> transport) {
    const Device device = transport->device();
    ProcessGroup group(std::move(transport));
    const Tensor x = full({4, 3}, group.rank(), DType::f32, device), y = shuffle(group, x, 1);
    const Tensor ranks = sum(y);
    group.all_reduce(reshape(ranks, {1})).wait();
    RT_CHECK_EQ(ranks.item(), 12 * (0 + 1 + 2));
    RT_CHECK(values(unshuffle(group, y, 1, {4, 4, 4})) == values(x));
  }));
}

// A step of replicas on all GPUs, two at least, is the step on the CPU.
// Rank r has a matrix of rank 1, so that all of them are sums of as many ranks as there are.
TEST_F(CudaComm, Reductions) {
  for (const ReductionEntry& how : reductions())
    EXPECT_SILENT(on_gpus(3, [&](std::unique_ptr<Transport> transport) {
      ProcessGroup group(std::move(transport));
      const Device device = group.transport().device();
      const auto matrix = [](int r) {
        Tensor x({12, 9});
        for (int i = 0; i < 108; ++i)
          x.data<float>()[i] = float((1 + (i / 9 + r) % 5) * ((i % 9 * (r + 1)) % 7 - 3)) / 8;
        return x;
      };
      const Tensor all = group.allocate({128}, DType::f32), m = all.window({12, 9}, {9, 1}),
                   bias = all.window({7}, {1}, 112);
      const Tensor users = full({}, 3, DType::f32, device);
      const auto reduction = how.make(group, {all, {{m, users, 0}, {bias, users, 112}}}, PowerSgdOptions{3, 1});
      const std::vector<double> expected = values(matrix(0) + matrix(1) + matrix(2));
      for (int step = 0; step < 3; ++step) {
        copy(m, to(matrix(group.rank()), device));
        copy(bias, full({7}, group.rank() + 1, DType::f32, device));
        reduction->start();
        reduction->proceed();
        reduction->finish();
        const std::vector<double> own = values(m), others = values(bias);
        for (size_t i = 0; i < own.size(); ++i)
          ASSERT_NEAR(own[i], expected[i], how.exact ? 0 : 0.02) << how.name << ", step " << step << ", at " << i;
        for (const double v : others) ASSERT_EQ(v, 6) << how.name;
      }
    })) << how.name;
}

TEST(CudaDataParallel, AStep) {
  RT_NEEDS_CUDA();
  Devices devices;
  for (int i = 0; i < std::max(2, std::min(runtime(kCuda).device_count(), 4)); ++i)
    devices.push_back({DeviceType::cuda, i % runtime(kCuda).device_count()});
  const auto drawn = [](const Shape& shape, uint64_t seed) {
    Tensor x(shape, DType::f64);
    fill_uniform(x, RandomState{seed, Stream::test, 0}, -1, 1);
    return x;
  };
  const auto step = [&](Device home) {
    const bool replicated = home == kCuda;
    const Tensor x = to(drawn({9, 4}, 1), home);
    const Tensors weights{leaf(to(drawn({5, 4}, 2), home)), leaf(to(drawn({5}, 3), home))};
    const auto model = [](const Tensors& w, const Tensor& at) { return tanh(linear(at, w[0], w[1])); };
    Tensor y;
    if (replicated) {
      const auto replicas = broadcast_coalesced(weights, devices);
      const Tensors parts = scatter(x, devices);
      Tensors ys(devices.size());
      parallel_apply(devices, [&](int i) { ys[size_t(i)] = model(replicas[size_t(i)], parts[size_t(i)]); });
      y = gather(ys, home);
    } else {
      y = model(weights, x);
    }
    backward(sum(square(y)));
    return Tensors{y.detach(), grad(weights[0]), grad(weights[1]), reduce_add_coalesced({weights, weights}, home)[0]};
  };
  const Tensors many = step(kCuda), one = step(Device{});
  for (size_t i = 0; i < one.size(); ++i)
    ringtape::test::expect_close(many[i], one[i], 1e-12, 1e-12, std::to_string(i));
}

TEST_F(CudaComm, MessagesInFlightTogether) {
  EXPECT_SILENT(on_gpus(3, [](Transport& t) {
    const int next = (t.rank() + 1) % 3, previous = (t.rank() + 2) % 3;
    const Tensor a = full({100}, t.rank(), DType::f32, t.device()),
                 b = full({100}, t.rank() + 10, DType::f32, t.device());
    Tensor from_next({100}, DType::f32, t.device()), from_previous({100}, DType::f32, t.device());
    begin(t, DType::f32, 100);
    const Transfer first[] = {send_to(next, View(a).data, 400), recv_from(previous, View(from_previous).data, 400)};
    const Transfer second[] = {recv_from(next, View(from_next).data, 400), send_to(previous, View(b).data, 400)};
    t.start(first);
    const auto both = t.start(second);
    t.finish(both);
    const void* const sources[] = {View(from_next).data, View(from_previous).data};
    t.combine(View(a).data, sources, 100);  // the buffers may be used again
    t.reached()->wait();
    EXPECT_EQ(values(a), std::vector<double>(100, next + 10 + previous));
  }));
}

TEST_F(CudaComm, NothingHangs) {
  const std::string mismatched = on_gpus(2, [](Transport& t) {
    const Tensor x({64 + t.rank()}, DType::f32, t.device());
    begin(t, DType::f32, 64 + t.rank());
    find_algorithm("ring").all_reduce(t, View(x).data, View(x).data);
  });
  EXPECT_NE(mismatched.find("the ranks make different calls"), std::string::npos) << mismatched;
  const std::string absent = on_gpus(
      3,
      [](Transport& t) {
        const Tensor x({64}, DType::f32, t.device());
        if (t.rank() == 1) return;
        begin(t, DType::f32, 64);
        find_algorithm("ring").all_reduce(t, View(x).data, View(x).data);
      },
      Seconds(0.3));
  EXPECT_NE(absent.find("for rank 1 in all_reduce #1"), std::string::npos) << absent;
  EXPECT_EQ(on_gpus(2,
                    [](Transport& t) {
                      if (t.rank() == 1) throw CommError("rank 1 has had enough");
                      const Tensor x({64}, DType::f32, t.device());
                      begin(t, DType::f32, 64);
                      direct(t, View(x).data, View(x).data);
                    }),
            "rank 1 has had enough");
}

// What a rank has given up sending is not received: its memory may be another's by then.
TEST_F(CudaComm, WhatWasGivenUpDoesNotArrive) {
  std::atomic<bool> given_up = false;
  EXPECT_NE(on_gpus(
                2,
                [&](Transport& t) {
                  const int peer = 1 - t.rank();
                  const Tensor x = full({64}, t.rank(), DType::f32, t.device());
                  if (t.rank() == 1)
                    while (!given_up) std::this_thread::yield();
                  begin(t, DType::f32, 64);
                  const Transfer transfer[] = {t.rank() ? recv_from(peer, View(x).data, 256)
                                                        : send_to(peer, View(x).data, 256)};
                  EXPECT_THROW(t.finish(t.start(transfer)), CommError) << "rank " << t.rank();
                  given_up = true;
                  EXPECT_EQ(values(x), std::vector<double>(64, t.rank()));
                  throw CommError("nobody came");
                },
                Seconds(0.3)),
            "");
}

TEST_F(CudaComm, NotOnTheCpu) {
  const auto on_the_cpu = [] { p2p_transport({0, 1, memory_store(), std::make_shared<Failure>()}, Device{}); };
  EXPECT_EQ(ringtape::test::message_of<DeviceError>(on_the_cpu), "a transport between GPUs, on cpu:0");
}

}  // namespace
}  // namespace ringtape::comm
