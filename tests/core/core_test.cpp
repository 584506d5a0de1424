#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/env.h"
#include "core/random.h"
#include "core/registry.h"
#include "core/runtime.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;
using test::values;

TEST(Check, SaysWhatWasExpectedAndWhatCame) {
  const int n = 3;
  EXPECT_NE(message_of<Error>([&] { RT_CHECK_EQ(n, 4, "rows"); }).find("expected n == 4 (3 vs. 4): rows"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([&] { RT_CHECK(n > 5); }).find("expected n > 5"), std::string::npos);
  EXPECT_EQ(message_of<ShapeError>([&] {
              RT_CHECK_AS(ShapeError, false, "op: ", Shape{2, 3}, ' ', 1.5, ' ', true);
            }),
            "op: (2, 3) 1.5 true");
}

TEST(Device, Parses) {
  EXPECT_EQ(parse_device("cpu"), (Device{DeviceType::cpu, 0}));
  EXPECT_EQ(parse_device("cpu:3").str(), "cpu:3");
  EXPECT_EQ(parse_device("cuda:1"), (Device{DeviceType::cuda, 1}));
  for (const char* bad : {"", "gpu", "cpu:", "cpu:x", "cpu:64", "cpu:-1", "cuda:1x"})
    EXPECT_NE(message_of<UsageError>([&] { parse_device(bad); }).find("expected cpu"), std::string::npos) << bad;
}

TEST(Device, AnAbsentOneIsNamed) {
  if (available(Device{DeviceType::cuda, 0})) return;
  EXPECT_NE(message_of<DeviceError>([] {
              zeros({1}, DType::f32, Device{DeviceType::cuda, 0});
            }).find("cuda:0"),
            std::string::npos);
}

TEST(Device, OperandsOnTwoDevicesAreRejected) {
  const Tensor a = ones({2}), b = ones({2}, DType::f32, Device{DeviceType::cpu, 1});
  EXPECT_NE(message_of<DeviceError>([&] { add(a, b); }).find("cpu:0 and cpu:1"), std::string::npos);
}

TEST(Device, CpuDevicesHaveArenasOfTheirOwn) {
  const Device one{DeviceType::cpu, 5};
  const int64_t before = memory_stats(Device{}).current;
  {
    const Tensor x({1000, 1000}, DType::f32, one);
    EXPECT_GE(memory_stats(one).current, 4'000'000);
    EXPECT_EQ(memory_stats(Device{}).current, before);
  }
  EXPECT_EQ(memory_stats(one).current, 0);
  EXPECT_GE(memory_stats(one).peak, 4'000'000);
  reset_peak_memory(one);
  EXPECT_EQ(memory_stats(one).peak, 0);
}

TEST(Memory, BlocksComeBack) {
  const Device device{DeviceType::cpu, 6};
  const auto use = [&] {
    for (int64_t n : {1, 17, 1000, 123457}) Tensor({n}, DType::f32, device);
  };
  use();
  const int64_t from_system = memory_stats(device).system_allocations;
  for (int i = 0; i < 100; ++i) use();
  EXPECT_EQ(memory_stats(device).system_allocations, from_system);
  runtime(device).release_cached(device.index);
  EXPECT_EQ(memory_stats(device).reserved, 0);
}

TEST(Memory, EverySizeGetsABlockThatHoldsIt) {
  const Device device{DeviceType::cpu, 7};
  for (int64_t n = 0; n < 5000; n += n < 300 ? 1 : 37) {
    const Tensor x({n}, DType::u8, device);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(View(x).data) % 64, 0u);
    EXPECT_GE(memory_stats(device).current, n);
    EXPECT_LE(memory_stats(device).current, std::max<int64_t>(64, n + n / 16 + 64));
    std::fill_n(x.data<uint8_t>(), n, uint8_t{1});
  }
}

TEST(Memory, AnImpossibleRequestIsAnErrorThatNamesIt) {
  EXPECT_NE(message_of<OutOfMemory>([] { Tensor({int64_t{1} << 50}); }).find(std::to_string(int64_t{4} << 50)),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([] { Tensor({2, -1}); }).find("negative"), std::string::npos);
}

TEST(DType, SixteenBitFloatsRoundToNearestEven) {
  for (int bits = 0; bits < 65536; ++bits) {  // every value survives a round trip
    f16 h;
    h.bits = uint16_t(bits);
    bf16 b;
    b.bits = uint16_t(bits);
    if (!std::isnan(float(h))) {
      EXPECT_EQ(f16(float(h)).bits, h.bits);
    }
    if (!std::isnan(float(b))) {
      EXPECT_EQ(bf16(float(b)).bits, b.bits);
    }
  }
  EXPECT_EQ(float(f16(1.f + 0x1p-11f)), 1.f);  // a tie goes to even
  EXPECT_EQ(float(f16(1.f + 3 * 0x1p-11f)), 1.f + 0x1p-9f);
  EXPECT_EQ(float(f16(65520.f)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float(f16(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(float(bf16(1.f + 0x1p-8f)), 1.f);
  EXPECT_EQ(float(bf16(1.f + 3 * 0x1p-8f)), 1.f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(float(f16(NAN))) && std::isnan(float(bf16(NAN))));
  EXPECT_EQ(float(f16(-INFINITY)), -INFINITY);
}

TEST(DType, NamesRoundTrip) {
  for (DType d : {DType::b8, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    EXPECT_EQ(parse_dtype(name_of(d)), d);
  EXPECT_NE(message_of<UsageError>([] { parse_dtype("float"); }).find("one of"), std::string::npos);
}

TEST(Shape, BroadcastsAsNumPyDoes) {
  EXPECT_EQ(broadcast({3, 1}, {1, 5}, "op"), (Shape{3, 5}));
  EXPECT_EQ(broadcast({}, {2}, "op"), (Shape{2}));
  EXPECT_EQ(broadcast({0, 1}, {1, 4}, "op"), (Shape{0, 4}));
  EXPECT_EQ(message_of<ShapeError>([] {
              broadcast({3, 2}, {3}, "op");
            }),
            "op: shapes (3, 2) and (3,) do not broadcast");
  EXPECT_NE(message_of<ShapeError>([] { (void)Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }).find("at most 8"),
            std::string::npos);
}

TEST(Tensor, ViewsShareMemory) {
  const Tensor x = arange(6, DType::f32);
  const Tensor y = transpose(reshape(x, {2, 3}));
  EXPECT_EQ(values(y), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  y.data<float>()[0] = 9;
  EXPECT_EQ(x.data<float>()[0], 9);
  EXPECT_FALSE(y.contiguous());
  EXPECT_NE(message_of<ShapeError>([&] { y.span<float>(); }).find("contiguous(x)"), std::string::npos);
  EXPECT_NE(message_of<DTypeError>([&] { y.data<double>(); }).find("f32"), std::string::npos);
}

// Bytes that others still write are waited for by whoever uses them, and by nobody else.
TEST(Tensor, UsesWaitForWhatArrives) {
  const Tensor x({4, 6}), other({3});
  std::vector<std::pair<size_t, size_t>> used;
  bool all = false;
  x.storage()->set_arriving([&](size_t begin, size_t end) {
    used.emplace_back(begin, end);
    return all;
  });
  const Tensor row = x.window({6}, {1}, 6), column = x.window({4}, {6}, 2), none = x.window({0}, {1}, 3);
  EXPECT_TRUE(used.empty());  // a window uses nothing
  (void)View(row), (void)column.data<float>(), (void)View(none), (void)View(other), (void)View(x);
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(used, (Ranges{{24, 48}, {8, 84}, {0, 96}}));
  all = true;
  (void)View(row), (void)View(row), (void)View(x);
  EXPECT_EQ(used.size(), 4u);  // asked once more, and told that all is there
  x.storage()->set_arriving([](size_t, size_t) -> bool { throw CommError("a rank has died"); });
  EXPECT_THROW((void)View(row), CommError);
  EXPECT_THROW((void)View(row), CommError);
  x.storage()->set_arriving({});
  (void)View(row);
}

TEST(Tensor, ReshapeOfAViewCopiesOnlyWhereItMust) {
  const Tensor x = reshape(arange(24, DType::f32), {4, 6});
  const Tensor part = slice(x, 1, 0, 6, 2);  // (4, 3), strides (6, 2)
  EXPECT_EQ(View(reshape(part, {2, 2, 3})).data, View(x).data);
  EXPECT_EQ(View(reshape(part, {12})).data, View(x).data);  // 6 = 3 * 2: one run of stride 2
  EXPECT_NE(View(reshape(slice(x, 1, 0, 4), {16})).data, View(x).data);
  EXPECT_EQ(values(reshape(slice(x, 1, 0, 4), {16}))[5], 7);
}

TEST(Tensor, Prints) {
  EXPECT_EQ(from_host(std::vector<float>{1, 2.5f, -3, 4}, {2, 2}).str(),
            "tensor([[1, 2.5],\n        [-3, 4]], shape=(2, 2), f32, cpu:0)");
  EXPECT_EQ(full({}, 2).str(), "tensor(2, shape=(), f32, cpu:0)");
  EXPECT_EQ(Tensor().str(), "tensor(undefined)");
  EXPECT_NE(arange(2000).str().find("0, 1, 2, ..., 1997, 1998, 1999"), std::string::npos);
}

TEST(Tensor, WhatItHasBesidesElementsPrints) {
  const Tensor x = zeros({2, 3}, DType::bf16);
  std::ostringstream out;
  out << x.shape() << ' ' << x.dtype() << ' ' << x.device();
  EXPECT_EQ(out.str(), "(2, 3) bf16 cpu:0");
}

TEST(Tensor, ItemNeedsOneElement) {
  EXPECT_EQ(full({1, 1}, 3).item(), 3);
  EXPECT_NE(message_of<ShapeError>([] { ones({2}).item(); }).find("(2,)"), std::string::npos);
}

// The known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Random, PhiloxGivesThePublishedNumbers) {
  const auto expect = [](Philox4 r, std::array<uint32_t, 4> want) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(r.x[i], want[i]);
  };
  expect(philox(0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect(philox(~0ull, ~0ull, ~0ull), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Random, DrawsDoNotDependOnHowTheyAreCut) {
  manual_seed(5);
  const Tensor whole = rand({1000});
  const RandomState after = default_generator().state();
  EXPECT_EQ(after.counter, 250u);
  manual_seed(5);
  const std::vector<double> first = values(rand({400})), second = values(rand({600}));
  const std::vector<double> all = values(whole);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_TRUE(std::equal(second.begin(), second.end(), all.begin() + 400));
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  manual_seed(1);
  const int64_t n = 200000;
  const Tensor u = rand({n}, -1, 3, DType::f64), g = randn({n}, 2, 0.5, DType::f64);
  EXPECT_NEAR(mean(u).item(), 1, 0.01);
  EXPECT_NEAR(var(u).item(), 16.0 / 12, 0.02);
  EXPECT_NEAR(mean(g).item(), 2, 0.005);
  EXPECT_NEAR(var(g).item(), 0.25, 0.005);
  const Tensor z = (g - 2.0) / 0.5;
  EXPECT_NEAR(mean(z * z * z).item(), 0, 0.05);
  EXPECT_NEAR(mean(square(square(z))).item(), 3, 0.1);
}

TEST(Random, PermutationsCoverAndDependOnEpochAndSeed) {
  const auto a = permutation(1000, 1, Stream::shuffle, 0), b = permutation(1000, 1, Stream::shuffle, 1),
             c = permutation(1000, 2, Stream::shuffle, 0);
  EXPECT_EQ(std::set<int64_t>(a.begin(), a.end()).size(), 1000u);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(a, permutation(1000, 1, Stream::shuffle, 0));
  EXPECT_TRUE(permutation(0, 1, Stream::shuffle, 0).empty());
}

TEST(Registry, KnowsWhatWasProbablyMeant) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("adma", "adam"), 1);  // a swap of neighbours
  EXPECT_EQ(edit_distance("Batch_Size", "batch-size"), 0);
  const std::vector<std::string> names = {"epochs", "batch-size", "lr"};
  EXPECT_EQ(nearest("epoch", names), "epochs");
  EXPECT_EQ(nearest("batchsize", names), "batch-size");
  EXPECT_EQ(nearest("zebra", names), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), names), "");
}

TEST(Registry, FindsAnEntryByItsName) {
  struct Entry {
    const char* name;
    int value;
  };
  static constexpr Entry kAdam{"adam", 1}, kSgd{"sgd", 2};
  const Entry entries[] = {kAdam, kSgd};
  const Entry* const pointers[] = {&kAdam, &kSgd};
  EXPECT_EQ(&find_entry(entries, "sgd", "optimizer"), &entries[1]);
  EXPECT_EQ(&find_entry(pointers, "sgd", "optimizer"), &kSgd);
  EXPECT_EQ(names_of(pointers), (std::vector<std::string>{"adam", "sgd"}));
  EXPECT_EQ(message_of<UsageError>([&] { find_entry(entries, "adma", "optimizer", "--optimizer: "); }),
            "--optimizer: unknown optimizer 'adma'; did you mean adam?");
  EXPECT_EQ(message_of<UsageError>([&] { find_entry(entries, "zebra", "optimizer"); }),
            "unknown optimizer 'zebra'; available: adam sgd");
  EXPECT_EQ(message_of<UsageError>([&] { find_entry(std::span(entries, 1), "", "optimizer"); }),
            "unknown optimizer ''; available: adam");
  check_known("value", "sgd", names_of(entries));
  EXPECT_EQ(message_of<UsageError>([&] { check_known("value", "SDG", names_of(entries), "--o: "); }),
            "--o: unknown value 'SDG'; did you mean sgd?");
}

TEST(Tensor, TooManyElementsAreRefused) {
  EXPECT_NE(message_of<ShapeError>([] {
              Tensor({int64_t{1} << 32, (int64_t{1} << 32) + 1});
            }).find("too many"),
            std::string::npos);
}

TEST(Text, ANumberThatIsNoneHasNoSign) {
  EXPECT_EQ(concat(-std::numeric_limits<double>::quiet_NaN(), " ", -std::numeric_limits<double>::infinity(), " ", -0.5),
            "nan -inf -0.5");
}

}  // namespace
}  // namespace ringtape
