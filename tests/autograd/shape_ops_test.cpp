// Ops on shapes and einsum: conventions, and einsum beside plain loops.
#include <cmath>
#include <map>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;
using test::values;
using Numbers = std::vector<double>;

const std::vector<DType> kAll = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                                 DType::f16, DType::bf16, DType::f32, DType::f64};

// All labels of the equation "a,b->c" in loops.
Numbers einsum_by_loops(const std::string& equation, const Tensors& operands) {
  std::vector<std::string> parts(1);
  for (const char c : equation) {
    if (c == ',' || c == '>') parts.emplace_back();
    else if (c != '-') parts.back() += c;
  }
  const std::string result = parts.back();
  parts.pop_back();
  std::string labels = result;
  std::map<char, int64_t> sizes, at;
  std::vector<Numbers> all;
  for (size_t k = 0; k < parts.size(); ++k) {
    all.push_back(values(operands[k]));
    for (size_t i = 0; i < parts[k].size(); ++i) {
      sizes[parts[k][i]] = operands[k].dim(int(i));
      if (labels.find(parts[k][i]) == labels.npos) labels += parts[k][i];
    }
  }
  Numbers out;
  int64_t inner = 1, total = 1;
  for (size_t i = 0; i < labels.size(); ++i) (i < result.size() ? total : inner) *= sizes[labels[i]];
  for (int64_t n = 0; n < total * inner; ++n) {
    int64_t rest = n;
    for (size_t i = labels.size(); i-- > 0; rest /= sizes[labels[i]]) at[labels[i]] = rest % sizes[labels[i]];
    double factor = 1;
    for (size_t k = 0; k < parts.size(); ++k) {
      int64_t place = 0;
      for (const char c : parts[k]) place = place * sizes[c] + at[c];
      factor *= all[k][size_t(place)];
    }
    if (n % inner == 0) out.push_back(0);
    out.back() += factor;
  }
  return out;
}

TEST(Einsum, LikeLoops) {
  const std::map<char, int64_t> sizes = {{'a', 2}, {'b', 3}, {'i', 4}, {'j', 5}, {'k', 2}, {'h', 3}};
  for (const std::string equation :
       {"i->i",      "ij->ji",     "ij->",         "ij->j",        "ii->i",        "iji->j",        "ij,jk->ik",
        "ij,kj->ik", "ij,jk->ki",  "bij,bjk->bik", "bij,bjk->ikb", "ij,ij->ij",    "ij,ij->",       "i,j->ji",
        "i,i->",     "ij,k->jk",   "ijk,k->ji",    "aij,bij->ab",  "ij,jk,kh->ih", "ij,ik,ih->jkh", "bi,ijk,bk->bj",
        "i,i,i->i",  "ab,ab,b->a", "abij,ij->ab",  "iij,j->i"}) {
    Tensors operands;
    manual_seed(1);
    for (size_t begin = 0; begin < equation.find('-');) {
      Shape shape;
      for (; sizes.count(equation[begin]); ++begin) shape.append(sizes.at(equation[begin]));
      ++begin;
      operands.push_back(rand(shape, -1, 1, DType::f64));
    }
    const Tensor y = einsum(equation, operands);
    const Numbers got = values(y), want = einsum_by_loops(equation, operands);
    ASSERT_EQ(got.size(), want.size()) << equation;
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << equation << ' ' << i;
    EXPECT_EQ(y.rank(), int(equation.size() - equation.find('>') - 1)) << equation;
  }
}

TEST(Einsum, SpacesDotsAndImplicitResults) {
  manual_seed(2);
  const Tensor a = rand({2, 3, 4}, -1, 1, DType::f64), b = rand({4, 5}, -1, 1, DType::f64);
  const Numbers want = values(matmul(a, b));
  for (const char* equation : {"nij,jk->nik", " n i j , j k -> n i k ", "...j,jk->...k", "...ij,...jk", "aij,jk"})
    EXPECT_EQ(values(einsum(equation, {a, b})), want) << equation;
  EXPECT_EQ(values(einsum("ba", {b})), values(transpose(b)));
  EXPECT_EQ(values(einsum("i...->i", {a})), values(sum(a, {1, 2})));
  EXPECT_EQ(einsum("...,...->...", {a, rand({4}, 0, 1, DType::f64)}).shape(), (Shape{2, 3, 4}));
}

TEST(Einsum, SaysWhatIsWrong) {
  const Tensor a = zeros({2, 3});
  EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum("ij,jk", {a}); }), "einsum: 'ij,jk': for 2 operands, got 1");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum("ijk", {a}); }), "einsum: 'ijk': 'ijk' for shape (2, 3)");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum("ij,ij->i", {a, zeros({2, 4})}); }), "sizes 3 and 4");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum("ii", {a}); }), "axes 0 and 1 of shape (2, 3) differ");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum("i.j->ij", {zeros({2, 3, 4})}); }), "expected letters");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum("ij->ijk", {a}); }), "a label that no operand has");
  for (const char* text : {"\x01\x02", "\xc3\xa4", "i\xff->i", "ij->i\n", "\x02j->\x02"})
    EXPECT_MENTIONS(message_of<ShapeError>([&] { einsum(text, {a}); }), "expected letters, '...', ',', '->'");
  EXPECT_EQ(message_of<ShapeError>([&] { einsum("i\n", {a}); }).find('\n'), std::string::npos);
}

TEST(ShapeOps, MoveEveryDtype) {
  for (const DType dtype : kAll) {
    const Tensor x = cast(from_host(Numbers{1, 0, 1, 1, 1, 0}, {2, 3}), dtype);
    const Numbers v = values(x);
    EXPECT_EQ(values(roll(x, 1, 1)), (Numbers{v[2], v[0], v[1], v[5], v[3], v[4]})) << name_of(dtype);
    EXPECT_EQ(values(repeat(x, {1, 2})),
              (Numbers{v[0], v[1], v[2], v[0], v[1], v[2], v[3], v[4], v[5], v[3], v[4], v[5]}));
    EXPECT_EQ(values(stack({x, x}, 1)), values(repeat(x, {1, 2})));
    EXPECT_EQ(values(tril(x)), (Numbers{v[0], 0, 0, v[3], v[4], 0})) << name_of(dtype);
    EXPECT_EQ(values(triu(x, 1)), (Numbers{0, v[1], v[2], 0, 0, v[5]})) << name_of(dtype);
    EXPECT_EQ(values(chunk(x, 2, 1)[0]), (Numbers{v[0], v[1], v[3], v[4]}));
    EXPECT_EQ(values(split(x, {1, 2}, 1)[1]), (Numbers{v[1], v[2], v[4], v[5]}));
    EXPECT_EQ(values(movedim(x, 0, 1)), values(transpose(x)));
    EXPECT_EQ(values(einsum("ij->ji", {x})), values(transpose(x)));
  }
}

TEST(ShapeOps, Shapes) {
  const Tensor x = zeros({2, 1, 3});
  EXPECT_EQ(squeeze(x).shape(), (Shape{2, 3}));
  EXPECT_EQ(squeeze(x, 1).shape(), (Shape{2, 3}));
  EXPECT_EQ(squeeze(x, 0).shape(), x.shape());
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{2, 1, 3, 1}));
  EXPECT_EQ(movedim(x, 2, 0).shape(), (Shape{3, 2, 1}));
  EXPECT_EQ(movedim(x, 0, -1).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(stack({x, x}, -1).shape(), (Shape{2, 1, 3, 2}));
  EXPECT_EQ(repeat(x, {4, 1, 5, 2}).shape(), (Shape{4, 2, 5, 6}));
  EXPECT_EQ(split(zeros({7}), 3).size(), 3u);
  EXPECT_EQ(split(zeros({0}), 3).size(), 1u);
  EXPECT_EQ(chunk(zeros({7}), 4).back().shape(), (Shape{1}));
  EXPECT_EQ(chunk(zeros({5}), 4).size(), 3u);  // 2, 2, 1
  EXPECT_EQ(expand(zeros({2, 1}), {3, -1, 4}).shape(), (Shape{3, 2, 4}));
  EXPECT_MENTIONS(message_of<ShapeError>([] { repeat(zeros({2, 2, 2, 2, 2}), {2, 2, 2, 2, 2}); }), "fewer axes");
}

// What they return may be written to.
TEST(ShapeOps, RepeatAndRollAlwaysCopy) {
  const Tensor x = rand({3, 1});
  for (const Tensor& y : {repeat(x, {1, 1}), repeat(x, {1, 1, 1}), repeat(x, {1, 4}), repeat(x, {2, 1}),
                          repeat(full({}, 2), {}), roll(x, 0, 0), roll(x, 3, 0), roll(x, 1, 1)}) {
    EXPECT_TRUE(y.contiguous()) << y.shape().str();
    EXPECT_NE(y.storage(), x.storage()) << y.shape().str();
  }
  EXPECT_EQ(values(repeat(x, {1, 1})), values(x));
  EXPECT_EQ(values(roll(x, 3, 0)), values(x));
  EXPECT_EQ(roll(full({}, 3), 1, 0).item(), 3);
}

TEST(ShapeOps, TooManyElements) {
  EXPECT_EQ(message_of<ShapeError>([] { repeat(ones({3}), {int64_t{1} << 62}); }),
            "repeat: (4611686018427387904,) of shape (3,): too many elements");
  EXPECT_MENTIONS(message_of<ShapeError>([] { repeat(ones({1}), {INT64_MAX, 3}); }), "repeat: ");
  EXPECT_EQ(message_of<ShapeError>([] {
              split(ones({3}), {1, INT64_MAX});
            }),
            "split: a part of 9223372036854775807 from 1 on along axis 0 of shape (3,)");
  const int64_t large = int64_t{1} << 32;  // whose square wraps around to 0
  EXPECT_MENTIONS(message_of<ShapeError>([&] { expand(ones({1}), {large, large}); }), "too many elements");
  EXPECT_MENTIONS(message_of<ShapeError>([&] { reshape(zeros({0}), {large, large}); }), "too many elements");
  EXPECT_EQ(expand(ones({1, 0, 1}), {large, 0, large}).size(), 0);
  EXPECT_EQ(split(ones({3}), INT64_MAX).size(), 1u);
  EXPECT_EQ(chunk(ones({3}), INT64_MAX).size(), 3u);
}

TEST(ShapeOps, OfNoTensor) {
  const Tensor none, index = arange(1);
  const auto refused = [](const char* op, auto call) {
    EXPECT_EQ(message_of<ShapeError>(call), concat(op, ": an undefined tensor"));
  };
  refused("repeat", [&] { repeat(none, {1}); });
  refused("unsqueeze", [&] { unsqueeze(none, 0); });
  refused("squeeze", [&] { squeeze(none); });
  refused("squeeze", [&] { squeeze(none, 0); });
  refused("expand", [&] { expand(none, {1}); });
  refused("roll", [&] { roll(none, 1, 0); });
  refused("split", [&] { split(none, 1); });
  refused("split", [&] { split(none, 1, 0); });
  refused("chunk", [&] { chunk(none, 1); });
  refused("stack", [&] { stack({none}); });
  refused("movedim", [&] { movedim(none, 0, 0); });
  refused("index_select", [&] { index_select(none, 0, index); });
  refused("index_select", [&] { index_select(index, 0, none); });
}

TEST(ShapeOps, SlicesEndWithTheAxis) {
  const Tensor x = arange(5);
  EXPECT_EQ(values(slice(x, 0, 3, 100)), (Numbers{3, 4}));
  EXPECT_EQ(values(slice(x, 0, 1, kToEnd, 2)), (Numbers{1, 3}));
  EXPECT_EQ(values(slice(x, 0, -100, 2)), (Numbers{0, 1}));
  EXPECT_EQ(values(slice(x, 0, 0, kToEnd, kToEnd)), (Numbers{0}));
  EXPECT_EQ(slice(x, 0, 4, 2).size(), 0);
  EXPECT_EQ(slice(x, 0, 9, kToEnd).size(), 0);
}

TEST(ShapeOps, AxesOfATensorWithoutAny) {
  const Tensor x = full({}, 3);
  for (int axis : {0, -1}) {
    EXPECT_EQ(softmax(x, axis).item(), 1);
    EXPECT_EQ(log_softmax(x, axis).item(), 0);
    EXPECT_EQ(l2_normalize(x, axis).item(), 1);
    EXPECT_EQ(cumsum(x, axis).item(), 3);
    EXPECT_EQ(sort(x, axis).indices.item(), 0);
    EXPECT_EQ(argmax(x, axis, true).shape(), Shape{});
    EXPECT_EQ(topk(x, 1, axis).values.shape(), Shape{});
  }
  EXPECT_THROW(cumsum(x, 1), ShapeError);
}

TEST(ShapeOps, ProductsOfVectors) {
  const Tensor v = from_host(Numbers{1, 2}, {2}), m = from_host(Numbers{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(matmul(v, v).shape(), Shape{});
  EXPECT_EQ(matmul(v, v).item(), 5);
  EXPECT_EQ(values(matmul(v, m)), (Numbers{9, 12, 15}));
  EXPECT_EQ(values(matmul(transpose(m), v)), (Numbers{9, 12, 15}));
  EXPECT_EQ(matmul(zeros({4, 5, 2}), zeros({2})).shape(), (Shape{4, 5}));
  EXPECT_MENTIONS(message_of<ShapeError>([&] { matmul(m, v); }), "got (2, 3) and (2,)");
}

TEST(ShapeOps, RangesOfNumbers) {
  EXPECT_EQ(values(arange(2, 7, 2)), (Numbers{2, 4, 6}));
  EXPECT_EQ(arange(2, 7, 2).dtype(), DType::i64);
  EXPECT_EQ(values(arange(3, 0, -1)), (Numbers{3, 2, 1}));
  EXPECT_EQ(values(arange(0, 1, 0.25, DType::f32)), (Numbers{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(1, 1).size(), 0);
  EXPECT_EQ(values(linspace(-1, 1, 5)), (Numbers{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(values(linspace(0, 0.3, 4, DType::f64)).back(), 0.3);
  EXPECT_EQ(values(linspace(2, 3, 1)), Numbers{2});
  EXPECT_EQ(linspace(2, 3, 0).size(), 0);
  EXPECT_EQ(values(arange(2.5)), (Numbers{0, 1, 2}));
  EXPECT_EQ(arange(2.5).dtype(), DType::f32);
  EXPECT_EQ(values(arange(2.5F, DType::i64)), (Numbers{0, 1, 2}));
  EXPECT_EQ(values(linspace(-1.7e308, 1.7e308, 5, DType::f64)), (Numbers{-1.7e308, -0.85e308, 0, 0.85e308, 1.7e308}));
  EXPECT_EQ(values(linspace(-1.7e308, 1.7e308, 2, DType::f64)), (Numbers{-1.7e308, 1.7e308}));
  EXPECT_EQ(values(arange(double(INT32_MAX), double(INT32_MAX) + 1, 1, DType::i32)), Numbers{INT32_MAX});
  EXPECT_MENTIONS(message_of<UsageError>([] { arange(3e9, 3e9 + 2, 1, DType::i32); }), "which i32 does not hold");
  EXPECT_THROW(arange(-3e9, 0, 1e9, DType::i32), UsageError);
  EXPECT_THROW(arange(1e19, 1e19 + 4096, 2048), UsageError);
  EXPECT_THROW(arange(257, DType::u8), UsageError);
  EXPECT_MENTIONS(message_of<UsageError>([] { linspace(0, 1e5, 3, DType::f16); }), "linspace: from 0 to 1e+05; ");
  EXPECT_THROW(linspace(0, INFINITY, 3), UsageError);
  EXPECT_THROW(arange(0, 1, 0.5), DTypeError);
  EXPECT_THROW(arange(0, 1, 0, DType::f32), UsageError);
  EXPECT_THROW(arange(0, 1, -1), UsageError);
  EXPECT_THROW(linspace(0, 1, 3, DType::i64), UsageError);
}

}  // namespace
}  // namespace ringtape
