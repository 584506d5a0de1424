// Devices of one process: moving tensors between them with gradients, and replicas that run together. The suites of all
// records check the records of these ops (comm/parallel/data_parallel.cpp).
#include "comm/parallel/data_parallel.h"

#include <array>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/parallel/parallel_apply.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using ringtape::test::expect_close;
using ringtape::test::message_of;
using ringtape::test::same_bytes;
using ringtape::test::values;

const Device kCpu0{}, kCpu1{DeviceType::cpu, 1}, kCpu2{DeviceType::cpu, 2};

Tensor drawn(const Shape& shape, uint64_t seed, DType dtype = DType::f64) {
  std::vector<double> x(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(double(seed * 1000 + i) * 1.7);
  return cast(from_host(x, shape), dtype);
}

TEST(DataParallel, ScatterGivesEachDeviceItsRows) {
  const Tensor x = drawn({7, 2}, 1);
  const Tensors parts = scatter(x, {kCpu0, kCpu1, kCpu2});
  const int64_t bounds[] = {0, 3, 5, 7};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parts[i].device(), (Device{DeviceType::cpu, int(i)}));
    EXPECT_EQ(values(parts[i]), values(slice(x, 0, bounds[i], bounds[i + 1])));
  }
  EXPECT_EQ(View(parts[0]).data, View(x).data) << "what is there already is shared";
  const Tensors few = scatter(drawn({1, 2}, 1), {kCpu0, kCpu1});
  EXPECT_EQ(few[0].shape(), Shape({1, 2}));
  EXPECT_EQ(few[1].shape(), Shape({0, 2}));
  EXPECT_EQ(gather(parts, kCpu1).device(), kCpu1);
  EXPECT_EQ(values(gather(parts, kCpu1)), values(x));
  EXPECT_EQ(gather({full({}, 1), full({}, 2, DType::f32, kCpu1)}, kCpu0).shape(), Shape({2}));
}

// Numbers whose sum depends on the order; the graph is recorded in another order.
TEST(DataParallel, GradientsAddUpInTheOrderOfTheDevices) {
  const Devices devices{kCpu2, kCpu0, kCpu1, kCpu0};
  const std::array<float, 4> pulls = {1e8f, 3.0f, -1e8f, 7.0f};
  float expected = 0;
  for (const float pull : pulls) expected += pull;
  for (const bool coalesced : {false, true})
    for (const std::array<size_t, 4>& order : {std::array<size_t, 4>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
      const Tensor x = leaf(ones({2}));
      Tensors ys(4), parts(4);
      if (!coalesced) ys = broadcast(x, devices);
      else
        for (size_t d = 0; const Tensors& list : broadcast_coalesced({x, leaf(ones({3}))}, devices)) ys[d++] = list[0];
      for (const size_t i : order) parts[i] = ys[i] * double(pulls[i]);
      backward(sum(gather(parts, kCpu0)));
      EXPECT_EQ(values(grad(x)), std::vector<double>(2, expected));
      Tensors addends;
      for (size_t i = 0; i < 4; ++i) addends.push_back(full({2}, pulls[i], DType::f32, devices[i]));
      EXPECT_EQ(values(reduce_add(addends, kCpu1)), std::vector<double>(2, expected));
    }
}

TEST(DataParallel, PacketsCarryWhatFitsOfOneDtype) {
  constexpr DType f32 = DType::f32;
  const Tensors xs{drawn({5}, 1, f32),    arange(3), drawn({100, 2}, 2, f32), drawn({4}, 3, f32), drawn({}, 4),
                   drawn({0, 3}, 5, f32), arange(1), drawn({30}, 6, f32)};
  const auto lists = broadcast_coalesced(xs, {kCpu0, kCpu1}, 256);
  for (size_t j = 0; j < xs.size(); ++j) {
    EXPECT_EQ(lists[0][j].storage(), xs[j].storage());
    EXPECT_EQ(lists[1][j].device(), kCpu1);
    EXPECT_EQ(lists[1][j].dtype(), xs[j].dtype());
    EXPECT_EQ(lists[1][j].shape(), xs[j].shape());
    EXPECT_EQ(values(lists[1][j]), values(xs[j]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(View(lists[1][j]).data) % 64, 0u);
  }
  const auto together = [&](size_t i, size_t j) { return lists[1][i].storage() == lists[1][j].storage(); };
  EXPECT_TRUE(together(1, 6) && together(3, 5) && together(3, 7));
  EXPECT_FALSE(together(0, 2) || together(2, 3) || together(0, 1) || together(4, 5));

  std::vector<Tensors> floats(2);
  for (size_t d = 0; d < 2; ++d)
    for (const size_t j : {0, 2, 3, 5, 7})
      floats[d].push_back(to(drawn(xs[j].shape(), j + 10 * d, f32), {DeviceType::cpu, int(d)}));
  for (const int64_t bytes : {int64_t{1}, int64_t{256}, kPacketBytes}) {
    const Tensors sums = reduce_add_coalesced(floats, kCpu0, bytes);
    for (size_t j = 0; j < sums.size(); ++j)
      EXPECT_TRUE(same_bytes(sums[j], reduce_add({floats[0][j], floats[1][j]}, kCpu0)));
  }
  EXPECT_TRUE(broadcast_coalesced({}, {kCpu0, kCpu1})[1].empty());
  EXPECT_EQ(message_of<DeviceError>([&] {
              broadcast_coalesced({xs[0], to(xs[0], kCpu1)}, {kCpu0});
            }),
            "broadcast_coalesced: a list on cpu:0 and cpu:1; move one with to(x, device)");
  const std::string differ = message_of<ShapeError>([&] { reduce_add_coalesced({{xs[0]}, {xs[3]}}, kCpu0); });
  EXPECT_NE(differ.find("(5,) and (4,) differ"), std::string::npos);
}

TEST(ParallelApply, ThreadsStayAndTakeOverWhatTheCallerHas) {
  const Devices devices{kCpu0, kCpu1, kCpu2};
  std::array<std::thread::id, 3> first, second;
  std::array<int, 3> shares{};
  test::with_threads(5, [&] {
    parallel_apply(devices,
                   [&](int i) { first[size_t(i)] = std::this_thread::get_id(), shares[size_t(i)] = threads(); });
    EXPECT_EQ(threads(), 5);
  });
  EXPECT_EQ(shares, (std::array<int, 3>{2, 2, 1}));
  std::array<bool, 3> records{};
  std::array<DType, 3> dtypes{};
  {
    const NoGrad no_grad;
    const Autocast autocast(DType::bf16);
    parallel_apply(devices, [&](int i) {
      second[size_t(i)] = std::this_thread::get_id(), records[size_t(i)] = grad_enabled(),
      dtypes[size_t(i)] = autocast_dtype();
    });
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 3u);
  EXPECT_EQ(records, (std::array<bool, 3>{}));
  EXPECT_EQ(dtypes, (std::array<DType, 3>{DType::bf16, DType::bf16, DType::bf16}));
  parallel_apply(devices, [&](int i) { records[size_t(i)] = grad_enabled(), dtypes[size_t(i)] = autocast_dtype(); });
  EXPECT_EQ(records, (std::array<bool, 3>{true, true, true}));
  EXPECT_EQ(dtypes[2], DType::f32);
  std::atomic<int> leaves{0};
  parallel_apply({kCpu0, kCpu1}, [&](int) { parallel_apply({kCpu0, kCpu1}, [&](int) { ++leaves; }); });
  EXPECT_EQ(leaves.load(), 4);
  parallel_apply({}, [](int) { FAIL(); });
}

TEST(ParallelApply, RunsAllAtOnce) {
  std::atomic<int> arrived{0};
  parallel_apply({kCpu0, kCpu1, kCpu2}, [&](int) {
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 3);
}

TEST(ParallelApply, RandomNumbersDependOnTheCallersAlone) {
  const auto draw = [] {
    Tensors xs(3);
    parallel_apply({kCpu0, kCpu0, kCpu1}, [&](int i) { xs[size_t(i)] = rand({4 + 4 * i}); });
    return xs;
  };
  manual_seed(5);
  const Tensor alone = rand({4});
  manual_seed(5);
  const Tensors a = draw(), b = draw();
  manual_seed(5);
  draw();
  const Tensors again = draw();
  EXPECT_TRUE(same_bytes(a[0], alone));
  std::set<double> all;
  for (const Tensors& xs : {a, b})
    for (const Tensor& x : xs)
      for (const double v : values(x)) all.insert(v);
  EXPECT_EQ(all.size(), 48u) << "numbers come twice";
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bytes(b[i], again[i]));
}

TEST(ParallelApply, TheFirstExceptionNamesItsReplica) {
  std::atomic<int> ended{0};
  const auto run = [&](int first) {
    ended = 0;
    parallel_apply({kCpu0, kCpu1, kCpu2}, [&](int i) {
      if (i < first) return void(++ended);
      while (i == 1 && ended.load() <= first) std::this_thread::yield();  // the second ends after the third
      ++ended;
      if (i == 1) throw ShapeError("no such shape");
      throw OutOfMemory("no memory");
    });
  };
  EXPECT_EQ(message_of<ShapeError>([&] { run(1); }), "in replica 1 on cpu:1: no such shape");
  EXPECT_EQ(ended.load(), 3);
  EXPECT_EQ(message_of<OutOfMemory>([&] { run(2); }), "in replica 2 on cpu:2: no memory");
  const auto odd = [](int) { throw std::runtime_error("odd"); };
  EXPECT_EQ(message_of<Error>([&] { parallel_apply({kCpu1}, odd); }), "in replica 0 on cpu:1: odd");
  const Tensor x = ones({2}), y = ones({3});
  const std::string named = message_of<ShapeError>([&] { parallel_apply({kCpu0}, [&](int) { x + y; }); });
  EXPECT_NE(named.find("in replica 0 on cpu:0: "), std::string::npos);
}

// A step on three devices equals the step on one: the loss and the gradients, in any order of the replicas' threads.
TEST(DataParallel, AStep) {
  const Tensor x = drawn({10, 4}, 1), pull = drawn({10, 3}, 2);
  const Tensors weights{leaf(drawn({5, 4}, 3)), leaf(drawn({5}, 4)), leaf(drawn({3, 5}, 5))};
  const auto model = [](const Tensors& w, const Tensor& at) { return linear(tanh(linear(at, w[0], w[1])), w[2]); };
  const auto step = [&](const Tensor& y) {
    for (const Tensor& w : weights) zero_grad(w);
    const Tensor loss = sum(square(y) * pull);
    backward(loss);
    Tensors all{loss.detach()};
    for (const Tensor& w : weights) all.push_back(grad(w));
    return all;
  };
  const Tensors one = step(model(weights, x));
  Tensors before;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Devices devices{kCpu0, kCpu1, kCpu2};
    const auto replicas = broadcast_coalesced(weights, devices);
    const Tensors parts = scatter(x, devices);
    Tensors ys(3);
    parallel_apply(devices, [&](int i) { ys[size_t(i)] = model(replicas[size_t(i)], parts[size_t(i)]); });
    const Tensors three = step(gather(ys, kCpu0));
    for (size_t i = 0; i < one.size(); ++i) {
      expect_close(three[i], one[i], 1e-12, 1e-12, std::to_string(i));
      EXPECT_TRUE(repeat == 0 || same_bytes(three[i], before[i]));
    }
    before = three;
  }
}

}  // namespace
}  // namespace ringtape::comm
