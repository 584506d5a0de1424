// Arithmetic of whole numbers and truth values, and of operands of several dtypes.
#include <cmath>
#include <cstdint>
#include <limits>

#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;
using test::values;

constexpr DType kAll[] = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                          DType::f16, DType::bf16, DType::f32, DType::f64};

template <class T> Tensor of(std::initializer_list<T> x) { return from_host(std::vector<T>(x), {int64_t(x.size())}); }

Tensor mask(std::initializer_list<bool> x) {
  return cast(from_host(std::vector<uint8_t>(x.begin(), x.end()), {int64_t(x.size())}), DType::b8);
}

TEST(Promotion, IsThatOfPyTorch) {
  using enum DType;
  // torch.promote_types
  const DType table[8][8] = {
      {b8, u8, i32, i64, f16, bf16, f32, f64},   {u8, u8, i32, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i64, f16, bf16, f32, f64}, {i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f32, f32, f64},  {bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f64},  {f64, f64, f64, f64, f64, f64, f64, f64},
  };
  for (const DType a : kAll)
    for (const DType b : kAll) {
      SCOPED_TRACE(concat(a, " and ", b));
      const DType want = table[int(a)][int(b)];
      const Tensor x = full({3}, 1, a), y = full({3}, 1, b);
      EXPECT_EQ((x + y).dtype(), want);
      EXPECT_EQ(maximum(x, y).dtype(), want);
      EXPECT_EQ(where(equal(x, y), x, y).dtype(), want);
      EXPECT_EQ((x / y).dtype(), is_float(want) ? want : f32);
      EXPECT_EQ(values(equal(x, y)), std::vector<double>(3, 1));
    }
}

TEST(Promotion, ANumberChangesOnlyTheKind) {
  using enum DType;
  for (const DType d : kAll) {
    SCOPED_TRACE(name_of(d));
    const Tensor x = full({2}, 1, d);
    EXPECT_EQ((x + 1).dtype(), d == b8 ? i64 : d);
    EXPECT_EQ((x * 1.5).dtype(), is_float(d) ? d : f32);
    EXPECT_EQ((1 - x).dtype(), d == b8 ? i64 : d);
    EXPECT_EQ((x + full({}, 1, f64)).dtype(), is_float(d) ? d : f64);
    EXPECT_EQ((x + full({}, 1, i64)).dtype(), d == b8 ? i64 : d);
    EXPECT_EQ((full({}, 1, f64) + x).dtype(), is_float(d) ? d : f64);
    EXPECT_EQ(where(equal(x, x), x, 0).dtype(), d == b8 ? i64 : d);
  }
  EXPECT_EQ(values(of<uint8_t>({0, 51, 255}) / 255), (std::vector<double>{0, double(51.f / 255.f), 1}));
}

// Of a quotient also one that the tensor's dtype does not hold: PyTorch 2.15 does so.
TEST(Promotion, ANumberOfAQuotientIsItself) {
  const auto near = [](const Tensor& x, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values(x)[i] / want[i], 1, 1e-6);
  };
  const Tensor x = of<uint8_t>({1, 100, 255});
  near(x / 256, {1.0 / 256, 100.0 / 256, 255.0 / 256});
  near(x / -1, {-1, -100, -255});
  near(1000 / x, {1000, 10, 1000.0 / 255});
  near(atan2(x, -1), {std::atan2(1, -1), std::atan2(100, -1), std::atan2(255, -1)});
  near(of<int32_t>({1, -1}) / 2500000000, {4e-10, -4e-10});
  EXPECT_EQ(values(x + 300), (std::vector<double>{45, 144, 43}));
}

TEST(Whole, NumbersThatADtypeDoesNotHoldAreRefused) {
  EXPECT_MENTIONS(message_of<UsageError>([] { full({1}, 300, DType::u8); }), "full: 300, which u8 does not hold");
  EXPECT_MENTIONS(message_of<UsageError>([] { full({1}, NAN, DType::i64); }), "full: nan");
  EXPECT_MENTIONS(message_of<UsageError>([] { full({1}, INFINITY, DType::i32); }), "full: inf");
  EXPECT_MENTIONS(message_of<UsageError>([] { fill_(zeros({1}, DType::u8), -1); }), "fill_: -1");
  EXPECT_EQ(full({}, 1e30, DType::b8).item(), 1);
}

TEST(Promotion, ANumberBesideATensorWithoutAxesIsANumber) {
  for (const DType d : kAll) {
    SCOPED_TRACE(name_of(d));
    const Tensor x = full({}, 1, d), yes = mask({true});
    EXPECT_EQ(floor_divide(x, 3).dtype(), d == DType::b8 ? DType::i64 : d);
    EXPECT_EQ(floor_divide(3, x).dtype(), d == DType::b8 ? DType::i64 : d);
    EXPECT_EQ(where(yes, x, 3).dtype(), d == DType::b8 ? DType::i64 : d);
    EXPECT_EQ(floor_divide(x, 2.5).dtype(), is_float(d) ? d : DType::f32);
  }
}

TEST(Promotion, GradientsArriveInTheirOwnDtype) {
  const Tensor a = leaf(full({2, 3}, 2)), b = leaf(full({3}, 5, DType::f64)), c = leaf(full({2, 1}, 3, DType::bf16));
  const Tensor y = a * b + where(mask({true, false, true}), c, b);
  EXPECT_EQ(y.dtype(), DType::f64);
  backward(sum(y));
  EXPECT_EQ(grad(a).dtype(), DType::f32);
  EXPECT_EQ(values(grad(a)), std::vector<double>(6, 5));
  EXPECT_EQ(grad(b).dtype(), DType::f64);
  EXPECT_EQ(values(grad(b)), (std::vector<double>{4, 6, 4}));
  EXPECT_EQ(grad(c).dtype(), DType::bf16);
  EXPECT_EQ(values(grad(c)), (std::vector<double>{2, 2}));
}

TEST(Whole, ArithmeticIsExactAndWrapsAround) {
  constexpr int64_t big = (int64_t{1} << 53) + 1, most = std::numeric_limits<int64_t>::max();
  const Tensor x = of<int64_t>({big, most, -big});
  EXPECT_EQ((x + 1).data<int64_t>()[0], big + 1);
  EXPECT_EQ((x + 1).data<int64_t>()[1], std::numeric_limits<int64_t>::min());
  EXPECT_EQ((x * 3).data<int64_t>()[2], -3 * big);
  EXPECT_EQ((x - big).data<int64_t>()[0], 0);
  EXPECT_EQ(maximum(x, big - 1).data<int64_t>()[0], big);
  EXPECT_EQ(values(equal(x, big)), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(values(less(x, of<int64_t>({big + 1, most, -big - 1}))), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(where(mask({true, true, false}), x, of<int32_t>({1, 2, 3})).data<int64_t>()[0], big);
  EXPECT_EQ(where(mask({false, true, true}), x, big + 2).data<int64_t>()[0], big + 2);
  EXPECT_EQ(cast(x, DType::i32).data<int32_t>()[0], 1);
  EXPECT_EQ(sum(x).data<int64_t>()[0], most);
  EXPECT_EQ(max(of<int64_t>({big, big - 1})).data<int64_t>()[0], big);
  EXPECT_EQ(values(of<uint8_t>({255, 1, 7}) + 1), (std::vector<double>{0, 2, 8}));
  EXPECT_EQ(values(of<uint8_t>({0, 1}) - of<uint8_t>({1, 1})), (std::vector<double>{255, 0}));
  EXPECT_EQ(values(pow(of<int64_t>({3, -2, 1, -1, 2, 0}), of<int64_t>({4, 3, -5, -3, -1, 0}))),
            (std::vector<double>{81, -8, 1, -1, 0, 1}));
}

// -7 // 2 and -7 % 2 of Python.
TEST(Whole, QuotientsAndRemaindersAreThoseOfPython) {
  const Tensor a = of<int64_t>({7, -7, 7, -7, 6, 5, std::numeric_limits<int64_t>::min()}),
               b = of<int64_t>({2, 2, -2, -2, -3, 0, -1});
  EXPECT_EQ(values(floor_divide(a, b)), (std::vector<double>{3, -4, -4, 3, -2, 0, -0x1p63}));
  EXPECT_EQ(values(a % b), (std::vector<double>{1, 1, -1, -1, 0, 0, 0}));
  const Tensor x = cast(slice(a, 0, 0, 5), DType::f64), y = cast(slice(b, 0, 0, 5), DType::f64);
  EXPECT_EQ(values(floor_divide(x, y)), (std::vector<double>{3, -4, -4, 3, -2}));
  EXPECT_EQ(values(remainder(x, y)), (std::vector<double>{1, 1, -1, -1, 0}));
  constexpr double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(values(floor_divide(of<double>({-1, 5, 1, 1}), of<double>({inf, -inf, 0.1, 0}))),
            (std::vector<double>{-1, -1, 9, inf}));  // 1 / 0.1 is 10, 1 % 0.1 almost 0.1
  const Tensor divisor = leaf(of<double>({0.1, 2}));
  backward(sum(remainder(of<double>({1, -7}), divisor)));
  EXPECT_EQ(values(grad(divisor)), (std::vector<double>{-9, 4}));
  EXPECT_EQ(values(of<uint8_t>({200, 7}) % -3), (std::vector<double>{200, 7}));  // of 253
  EXPECT_EQ(values(remainder(of<float>({5.5f, -5.5f, 0.f, 3.f}), 2.0)), (std::vector<double>{1.5, 0.5, 0, 1}));
}

TEST(Whole, TruthValuesAndBits) {
  const Tensor a = mask({false, false, true, true}), b = mask({false, true, false, true});
  EXPECT_EQ((a & b).dtype(), DType::b8);
  EXPECT_EQ(values(a & b), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(values(a | b), (std::vector<double>{0, 1, 1, 1}));
  EXPECT_EQ(values(a ^ b), (std::vector<double>{0, 1, 1, 0}));
  EXPECT_EQ(values(~a), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(values(a + b), (std::vector<double>{0, 1, 1, 1}));
  EXPECT_EQ(values(a * b), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(values(logical_and(of<float>({0, 2, -1}), of<int32_t>({1, 1, 0}))), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(values(logical_not(of<int64_t>({0, 3}))), (std::vector<double>{1, 0}));
  EXPECT_EQ(values(of<int32_t>({12, 10}) & of<int64_t>({10, 3})), (std::vector<double>{8, 2}));
  EXPECT_EQ(values(~of<uint8_t>({0, 7})), (std::vector<double>{255, 248}));
  EXPECT_EQ(message_of<DTypeError>([&] { a - b; }),
            "sub: truth values are not subtracted; use logical_xor or not_equal");
  EXPECT_NE(message_of<DTypeError>([&] { ones({2}) & a; }), "");
}

TEST(Whole, UnaryOperationsStayWholeWhereTheyCan) {
  const Tensor x = of<int32_t>({-3, 0, 4});
  EXPECT_EQ(values(neg(x)), (std::vector<double>{3, 0, -4}));
  EXPECT_EQ(values(abs(x)), (std::vector<double>{3, 0, 4}));
  EXPECT_EQ(values(sign(x)), (std::vector<double>{-1, 0, 1}));
  EXPECT_EQ(values(relu(x)), (std::vector<double>{0, 0, 4}));
  EXPECT_EQ(values(square(x)), (std::vector<double>{9, 0, 16}));
  EXPECT_EQ(values(clamp(x, -1, 2)), (std::vector<double>{-1, 0, 2}));
  EXPECT_EQ(values(clamp(x, -1.5, 2)), (std::vector<double>{-1.5, 0, 2}));
  for (const Tensor& y : {neg(x), abs(x), sign(x), relu(x), square(x), clamp(x, -1, 2), round(x)})
    EXPECT_EQ(y.dtype(), DType::i32);
  EXPECT_EQ(values(abs(of<uint8_t>({5, 200, 0}))), (std::vector<double>{5, 200, 0}));
  EXPECT_NE(View(floor(x)).data, View(x).data);
  EXPECT_EQ(exp(x).dtype(), DType::f32);
  EXPECT_EQ(values(round(of<float>({-2.5f, -1.5f, 0.5f, 1.5f, 2.4f}))), (std::vector<double>{-2, -2, 0, 2, 2}));
}

TEST(Whole, Reductions) {
  const Tensor x = from_host(std::vector<uint8_t>{200, 100, 50, 3, 2, 1}, {2, 3});
  EXPECT_EQ(sum(x).dtype(), DType::i64);
  EXPECT_EQ(values(sum(x, {1})), (std::vector<double>{350, 6}));
  EXPECT_EQ(values(prod(x, {1})), (std::vector<double>{1000000, 6}));
  EXPECT_EQ(mean(x).dtype(), DType::f32);
  EXPECT_EQ(values(mean(x, {0})), (std::vector<double>{101.5, 51, 25.5}));
  EXPECT_EQ(max(x).dtype(), DType::u8);
  EXPECT_EQ(values(max(x, {0})), (std::vector<double>{200, 100, 50}));
  EXPECT_EQ(values(min(x, {1}, true)), (std::vector<double>{50, 1}));
  EXPECT_EQ(sum(greater(x, 2)).data<int64_t>()[0], 4);
  EXPECT_EQ(values(any(greater(x, 100), {1})), (std::vector<double>{1, 0}));
  EXPECT_EQ(values(all(greater(x, 49), {1})), (std::vector<double>{1, 0}));
  const Tensor none = zeros({0, 3}, DType::i32);
  EXPECT_EQ(values(sum(none, {0})), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(values(any(none, {0})), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(values(all(none, {0})), (std::vector<double>{1, 1, 1}));
  EXPECT_NE(message_of<ShapeError>([&] { max(none, {0}); }), "");
  EXPECT_EQ(max(none, {1}).shape(), Shape{0});
  // Many: rows that threads share, columns, and totals beyond a double's 2^53.
  const Tensor many = full({3, 200001}, 1, DType::i64) * ((int64_t{1} << 40) + 1);
  EXPECT_EQ(sum(many, {1}).data<int64_t>()[2], 200001 * ((int64_t{1} << 40) + 1));
  EXPECT_EQ(sum(transpose(many), {0}).data<int64_t>()[1], 200001 * ((int64_t{1} << 40) + 1));
}

TEST(Reductions, ProductsWithZeros) {
  const Tensor x = leaf(from_host(std::vector<double>{2, 3, 4, 0, 5, 6, 0, 0, 7}, {3, 3}));
  const Tensor y = prod(x, {1});
  EXPECT_EQ(values(y), (std::vector<double>{24, 0, 0}));
  backward(sum(y));
  EXPECT_EQ(values(grad(x)), (std::vector<double>{12, 8, 6, 30, 0, 0, 0, 0, 0}));
}

TEST(Reductions, ATensorWithoutAxesHasAxisZero) {
  const Tensor x = full({}, 3);
  EXPECT_EQ(sum(x, {0}).item(), 3);
  EXPECT_EQ(max(x, {-1}).item(), 3);
  EXPECT_EQ(mean(x, {0}, true).rank(), 0);
  EXPECT_NE(message_of<ShapeError>([&] { sum(x, {1}); }), "");
}

TEST(Reductions, SquaresOf16BitsAreNotOf16Bits) {
  const Tensor x = cast(of<float>({300, 400}), DType::f16);
  EXPECT_EQ(norm(x).item(), 500);
  EXPECT_EQ(standard_deviation(cast(of<float>({-300, 300}), DType::f16)).item(), 424.25);
}

TEST(Reductions, NormsOfOtherOrdersHaveNoSlopeAtZero) {
  for (const double p : {0.5, 1., 2., 3., double(INFINITY)}) {
    EXPECT_EQ(norm(zeros({0}), {}, false, p).item(), 0);
    const Tensor x = leaf(of<double>({0, 2})), none = leaf(zeros({3}));
    backward(norm(x, {}, false, p));
    test::expect_close(grad(x), of<double>({0, 1}), 1e-15, 0, concat("p = ", p));
    backward(norm(none, {}, false, p));
    EXPECT_EQ(values(grad(none)), std::vector<double>(3, 0)) << p;
  }
}

TEST(Unary, BinaryLogarithmsOfPowersOfTwoAreExact) {
  for (int e = -126; e <= 127; ++e) {
    EXPECT_EQ(log2(full({}, std::ldexp(1., e))).item(), e);
    EXPECT_EQ(log2(full({}, std::ldexp(1., e), DType::f64)).item(), e);
  }
}

TEST(Binary, TheAngleAtTheOriginHasNoSlope) {
  const Tensor y = leaf(zeros({2})), x = leaf(zeros({2}));
  backward(sum(atan2(y, x)));
  EXPECT_EQ(values(grad(y)), std::vector<double>(2, 0));
  EXPECT_EQ(values(grad(x)), std::vector<double>(2, 0));
}

TEST(Reductions, RootsHaveNoSlopeAtZero) {
  const Tensor x = leaf(zeros({2, 3}));
  backward(sum(norm(x, {1}) + standard_deviation(x, {1})));
  EXPECT_EQ(values(grad(x)), std::vector<double>(6, 0));
}

TEST(Predicates, OfWhatIsNotFinite) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = of<float>({1, NAN, inf, -inf});
  EXPECT_EQ(values(isnan(x)), (std::vector<double>{0, 1, 0, 0}));
  EXPECT_EQ(values(isinf(x)), (std::vector<double>{0, 0, 1, 1}));
  EXPECT_EQ(values(isfinite(x)), (std::vector<double>{1, 0, 0, 0}));
}

}  // namespace
}  // namespace ringtape
