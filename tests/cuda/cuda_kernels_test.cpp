// What the samples of the ops' records are too small to reach in the kernels that work element by element and in
// the optimizers: wide and misaligned buffers, tails, transposed copies, every dtype.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/binary.h"
#include "kernels/clamp.h"
#include "kernels/copy.h"
#include "kernels/dropout.h"
#include "kernels/fill.h"
#include "kernels/gradient.h"
#include "kernels/optimizer.h"
#include "kernels/unary.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::Guarded;
using test::kCuda;
using test::kFloats;
using test::noise;
using test::values;

const std::vector<DType> kAll = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                                 DType::f16, DType::bf16, DType::f32, DType::f64};
const std::vector<int64_t> kSizes = {0, 1, 3, 31, 33, 255, 257, 1000, 4099};

using CudaElementwise = test::OnCuda;
using CudaCopy = test::OnCuda;
using CudaFill = test::OnCuda;
using CudaOptimizer = test::OnCuda;

TEST_F(CudaElementwise, EverySizeAndAlignment) {
  for (DType dtype : kFloats)
    for (int64_t n : kSizes)
      for (int64_t offset : {0, 1, 2}) {
        SCOPED_TRACE(concat(dtype, " n ", n, " offset ", offset));
        const Tensor a = noise({n}, dtype, 1), b = noise({n}, dtype, 2);
        const Guarded x(a, offset), y(b, offset), out(b, offset);
        add_forward(out.x, x.x, y.x);
        expect_close(out.x, a + b, 0, 0, "add");
        out.expect_guards(offset);
        relu_forward(x.x, x.x);  // in place
        expect_close(x.x, relu(a), 0, 0, "relu in place");
        x.expect_guards(offset);
      }
}

// Every row of the tables as a kernel of its own, also those gradients that autograd never asks for; dense and not.
struct Operands {
  Tensor a, b, y, dy;
  Operands on_cuda() const { return {to(a, kCuda), to(b, kCuda), to(y, kCuda), to(dy, kCuda)}; }
};
template <class F> void expect_same_kernel(const Operands& o, const std::string& what, const F& call) {
  const double tolerance = o.a.dtype() == DType::f64   ? 1e-13
                           : o.a.dtype() == DType::f32 ? 4e-6
                           : o.a.dtype() == DType::f16 ? 4e-3
                                                       : 3e-2;
  for (bool dense : {true, false}) {
    Tensor host = empty_like(o.a), device({o.a.dim(0), o.a.dim(1)}, o.a.dtype(), kCuda);
    const Operands cuda = o.on_cuda();
    const auto seen = [dense](const Tensor& t) -> View { return dense ? t : transpose(t); };
    call(seen(host), seen, o);
    call(seen(device), seen, cuda);
    expect_close(device, host, tolerance, tolerance, what + (dense ? ", dense" : ", strided"));
  }
}

TEST_F(CudaElementwise, EveryRowOfTheTables) {
  for (DType dtype : kFloats) {
    const Tensor a = noise({19, 23}, dtype, 1, 0.2, 2), b = noise({19, 23}, dtype, 2, 0.5, 2),
                 g = noise({19, 23}, dtype, 3);
    const auto misplaced = [](const Tensor& t) { return slice(t, 1, 1, 22); };  // not dense, whichever way it is read
    for (bool whole : {true, false}) {
      const auto part = [&](const Tensor& t) { return whole ? t : misplaced(t); };
      const Operands o{part(a), part(b), part(b), part(g)};
      const auto compare = [&](const char* name, const auto& f) { expect_same_kernel(o, name, f); };
#define X(name, ...)                                                                   \
  compare(#name, [](View y, auto& seen, auto& in) { name##_forward(y, seen(in.a)); }); \
  compare(#name "_backward",                                                           \
          [](View dx, auto& seen, auto& in) { name##_backward(dx, seen(in.a), seen(in.y), seen(in.dy)); });
      RT_UNARY_OPS(X)
#undef X
#define X(name, ...) compare(#name, [](View y, auto& seen, auto& in) { name##_forward(y, seen(in.a)); });
      RT_STEP_OPS(X)
#undef X
#define X(name, ...)                                                                         \
  compare(#name, [](View y, auto& seen, auto& in) { name##_forward(y, seen(in.dy), 0.3); }); \
  compare(#name "_backward",                                                                 \
          [](View dx, auto& seen, auto& in) { name##_backward(dx, seen(in.dy), seen(in.y), seen(in.a), 0.3); });
      RT_UNARY_NUMBER_OPS(X)
#undef X
#define X(name, ...)                                                                                        \
  compare(#name, [](View y, auto& seen, auto& in) { name##_forward(y, seen(in.a), seen(in.b)); });          \
  compare(#name "_backward_a",                                                                              \
          [](View d, auto& seen, auto& in) { name##_backward_a(d, seen(in.a), seen(in.b), seen(in.dy)); }); \
  compare(#name "_backward_b",                                                                              \
          [](View d, auto& seen, auto& in) { name##_backward_b(d, seen(in.a), seen(in.b), seen(in.dy)); });
      RT_BINARY_OPS(X)
#undef X
      compare("clamp", [](View y, auto& seen, auto& in) { clamp_forward(y, seen(in.dy), -0.5, 0.7); });
      compare("clamp_backward",
              [](View d, auto& seen, auto& in) { clamp_backward(d, seen(in.dy), seen(in.b), -0.5, 0.7); });
    }
  }
}

TEST_F(CudaElementwise, ANumberAndABroadcastRow) {
  for (DType dtype : kFloats) {
    const Tensor x = noise({37, 65}, dtype, 1), row = noise({65}, dtype, 2), column = noise({37, 1}, dtype, 3);
    const Tensor gx = to(x, kCuda);
    expect_close(gx * 3, x * 3, 0, 0, "number");
    expect_close(gx + to(row, kCuda), x + row, 0, 0, "row");
    expect_close(to(column, kCuda) - gx, column - x, 0, 0, "column");
  }
}

TEST_F(CudaElementwise, ManyMoreElementsThanThreads) {
  const Tensor x = noise({600011}, DType::f32, 5), y = noise({600011}, DType::f32, 6);
  expect_close(to(x, kCuda) * to(y, kCuda), x * y, 0, 0, "dense");
  expect_close(slice(to(x, kCuda), 0, 0, 600011, 2) + 1, slice(x, 0, 0, 600011, 2) + 1, 0, 0, "strided");
}

TEST_F(CudaElementwise, ComparesEveryDType) {
  for (DType dtype : kAll) {
    const Tensor a = cast(noise({300}, DType::f32, 1, 0, 3), dtype), b = cast(noise({300}, DType::f32, 2, 0, 3), dtype);
    EXPECT_EQ(values(less(to(a, kCuda), to(b, kCuda))), values(less(a, b))) << name_of(dtype);
    EXPECT_EQ(values(equal(to(a, kCuda), to(b, kCuda))), values(equal(a, b))) << name_of(dtype);
  }
}

TEST_F(CudaElementwise, WholeNumbersAreExact) {
  const Tensor large = cast(noise({300}, DType::f64, 1, -9e18, 9e18), DType::i64);
  for (DType dtype : {DType::b8, DType::u8, DType::i32, DType::i64}) {
    const Tensor a = cast(large, dtype), b = cast(cast(noise({300}, DType::f64, 2, -9, 9), DType::i64), dtype);
    const Tensor ga = to(a, kCuda), gb = to(b, kCuda);
#define X(name, ...)                                                                                       \
  {                                                                                                        \
    const Tensor y({300}, dtype), gy({300}, dtype, kCuda);                                                 \
    name##_whole(y, a, b);                                                                                 \
    name##_whole(gy, ga, gb);                                                                              \
    EXPECT_EQ(values(equal(to(gy, Device{}), y)), std::vector<double>(300, 1)) << #name << name_of(dtype); \
  }
    RT_WHOLE_OPS(X)
#undef X
    EXPECT_EQ(values(equal(to(where(greater(gb, 1), ga, gb), Device{}), where(greater(b, 1), a, b))),
              std::vector<double>(300, 1));
    EXPECT_EQ(values(equal(to(cast(ga, DType::i64), Device{}), cast(a, DType::i64))), std::vector<double>(300, 1));
    for (auto* reduced : {sum, prod, max, min}) {
      const auto rows = [&](const Tensor& x) { return to(reduced(reshape(x, {20, 15}), {1}, false), Device{}); };
      EXPECT_EQ(values(equal(rows(ga), rows(a))), std::vector<double>(20, 1)) << name_of(dtype);
    }
  }
}

TEST_F(CudaElementwise, NanAndInfinityGoThrough) {
  const float nan = NAN, inf = INFINITY;
  const Tensor x = from_host(std::vector<float>{nan, inf, -inf, 0, -0.f, 1, 2, 3}, {8}),
               y = from_host(std::vector<float>{1, nan, 2, nan, 0, inf, -inf, 3}, {8});
  const Tensor gx = to(x, kCuda), gy = to(y, kCuda);
  expect_close(maximum(gx, gy), maximum(x, y), 0, 0, "maximum");
  expect_close(clamp(gx, -1, 1), clamp(x, -1, 1), 0, 0, "clamp");
  expect_close(relu(gx), relu(x), 0, 0, "relu");
  expect_close(exp(gx), exp(x), 1e-6, 0, "exp");
  EXPECT_EQ(values(less(gx, gy)), values(less(x, y)));
}

TEST_F(CudaCopy, EveryDTypeToEveryOther) {
  for (DType from : kAll)
    for (DType wanted : kAll) {
      const Tensor x =
          cast(from_host(std::vector<double>{0, 1, 3, 100, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, {17}), from);
      EXPECT_EQ(values(cast(to(x, kCuda), wanted)), values(cast(x, wanted)))
          << name_of(from) << " to " << name_of(wanted);
      const Tensor odd = slice(to(x, kCuda), 0, 1, 17);  // misaligned
      EXPECT_EQ(values(cast(odd, wanted)), values(cast(slice(x, 0, 1, 17), wanted)))
          << name_of(from) << " to " << name_of(wanted);
    }
  const Tensor big = from_host(std::vector<int64_t>{(int64_t{1} << 53) - 1, -5}, {2});
  EXPECT_EQ(values(to(big, kCuda)), values(big));
}

TEST_F(CudaCopy, RoundsToSixteenBitsAsTheCpuDoes) {
  std::vector<float> all;
  // Through all exponents, both signs.
  for (uint32_t i = 0; i < 60000; ++i) all.push_back(std::bit_cast<float>(i * 71583u));
  const Tensor x = from_host(all, {int64_t(all.size())});
  for (DType dtype : {DType::f16, DType::bf16})
    EXPECT_EQ(values(equal(to(cast(to(x, kCuda), dtype), Device{}), cast(x, dtype))), values(equal(x, x)))
        << name_of(dtype);
}

TEST_F(CudaCopy, Transposes) {
  for (DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64})
    for (const Shape& shape : {Shape{33, 65}, Shape{8, 8}, Shape{64, 32}, Shape{3, 40, 50}, Shape{2, 3, 17, 33},
                               Shape{70, 9, 5}, Shape{1, 100, 31}}) {
      const Tensor x = cast(noise(shape, DType::f32, 9, 0, 200), dtype), gx = to(x, kCuda);
      for (int a = 0; a < shape.rank(); ++a)
        for (int b = 0; b < a; ++b)
          EXPECT_EQ(values(contiguous(transpose(gx, a, b))), values(contiguous(transpose(x, a, b))))
              << shape.str() << ' ' << a << ' ' << b;
    }
  const Tensor x = noise({1000, 700}, DType::f32, 3);  // more tiles than blocks
  EXPECT_EQ(values(contiguous(transpose(to(x, kCuda)))), values(contiguous(transpose(x))));
}

TEST_F(CudaCopy, WritesOnlyItsPart) {
  for (DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64}) {
    const Tensor x = cast(noise({40, 50}, DType::f32, 4, 0, 100), dtype), host = full({50, 120}, 77, dtype),
                 device = full({50, 120}, 77, dtype, kCuda);
    const auto place = [](const Tensor& whole) { return slice(slice(whole, 0, 5, 45), 1, 10, 110, 2); };
    copy(place(host), x);
    copy(place(device), to(x, kCuda));
    EXPECT_EQ(values(device), values(host)) << name_of(dtype);
    const auto columns = [](const Tensor& whole) { return slice(slice(whole, 0, 0, 50), 1, 3, 43); };
    copy(columns(host), transpose(x));
    copy(columns(device), transpose(to(x, kCuda)));  // tiles into rows that are longer than the tile
    EXPECT_EQ(values(device), values(host)) << name_of(dtype);
  }
}

TEST_F(CudaFill, EveryDTypeSizeAndLayout) {
  for (DType dtype : kAll)
    for (int64_t n : {0, 1, 15, 16, 17, 100, 5000}) {
      const Tensor whole = full({n + 9}, 77, dtype, kCuda), expected = full({n + 9}, 77, dtype);
      for (int64_t offset : {0, 1, 4})
        for (const Tensor& x : {whole, expected}) fill(x.window({n}, {1}, offset), double(offset + 2));
      EXPECT_EQ(values(whole), values(expected)) << name_of(dtype) << ' ' << n;
    }
  const Tensor device = full({20, 30}, 0, DType::f32, kCuda), host = full({20, 30}, 0);
  for (const Tensor& x : {device, host}) fill(slice(transpose(x), 0, 1, 30, 3), 5);
  EXPECT_EQ(values(device), values(host));
}

TEST_F(CudaFill, RangesAndRandomNumbers) {
  for (DType dtype : kAll) EXPECT_EQ(values(arange(100, dtype, kCuda)), values(arange(100, dtype))) << name_of(dtype);
  for (DType dtype : kFloats)
    for (int64_t n : kSizes) {
      const RandomState state{11, Stream::test, 5};
      Tensor device({n}, dtype, kCuda), host({n}, dtype);
      fill_uniform(device, state, -3, 4), fill_uniform(host, state, -3, 4);
      EXPECT_EQ(values(device), values(host)) << name_of(dtype) << ' ' << n;
      fill_normal(device, state, 1, 2), fill_normal(host, state, 1, 2);
      const double tolerance = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-6 : 1e-2;
      expect_close(device, host, tolerance, tolerance, "normal");
      if (n > 0) {
        dropout_forward(device, to(full({n}, 3, dtype), kCuda), 0.4, state),
            dropout_forward(host, full({n}, 3, dtype), 0.4, state);
        EXPECT_EQ(values(device), values(host)) << "dropout";
      }
    }
}

TEST_F(CudaFill, DropoutAtAnyAlignment) {
  for (DType dtype : kFloats)
    for (int64_t offset : {0, 1, 4}) {
      const Tensor host = noise({1003}, dtype, 8);
      const Guarded x(host, offset);
      Tensor y = empty_like(host), gy({1003}, dtype, kCuda);
      dropout_forward(y, host, 0.3, {3, Stream::test, 0}), dropout_forward(gy, x.x, 0.3, {3, Stream::test, 0});
      EXPECT_EQ(values(gy), values(y));
    }
}

TEST_F(CudaOptimizer, EveryStepAtEverySizeAndAlignment) {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {1, 5, 257, 4099})
      for (int64_t offset : {0, 1}) {
        SCOPED_TRACE(concat(dtype, " n ", n, " offset ", offset));
        const Tensor w = noise({n}, dtype, 1), g = noise({n}, dtype, 2), v = noise({n}, dtype, 3),
                     s = noise({n}, dtype, 4, 0, 1);
        const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
        const auto check = [&](const char* what, const auto& step) {
          const Guarded gw(w, offset), gg(g, offset), gv(v, offset), gs(s, offset);
          const Tensor hw = to(to(w, kCuda), Device{}), hv = to(to(v, kCuda), Device{}),
                       hs = to(to(s, kCuda), Device{});  // copies
          step(gw.x, gg.x, gv.x, gs.x), step(hw, g, hv, hs);
          expect_close(gw.x, hw, tolerance, tolerance, concat(what, ": w"));
          expect_close(gv.x, hv, tolerance, tolerance, concat(what, ": v"));
          expect_close(gs.x, hs, tolerance, tolerance, concat(what, ": s"));
          for (const Guarded* t : {&gw, &gg, &gv, &gs}) t->expect_guards(offset);
        };
        check("sgd", [](View p, View d, View, View) { sgd_step(p, View{}, d, View{}, {0.1, 0, 0.01, false}); });
        check("momentum", [](View p, View d, View m, View) { sgd_step(p, m, d, View{}, {0.1, 0.9, 0.01, false}); });
        check("nesterov", [](View p, View d, View m, View) { sgd_step(p, m, d, View{}, {0.1, 0.9, 0.01, true}); });
        check("adam", [](View p, View d, View m, View q) {
          adam_step(p, m, q, d, View{}, {1e-3, 0.9, 0.999, 1e-8, 0.1, false, 3});
        });
        check("ema", [](View p, View d, View, View) { ema_step(p, d, 0.9); });
        check("adamw", [](View p, View d, View m, View q) {
          adam_step(p, m, q, d, View{}, {1e-3, 0.9, 0.999, 1e-8, 0.1, true, 3});
        });
      }
  const Tensor half = full({4}, 1, DType::bf16, kCuda);
  EXPECT_MENTIONS(test::message_of<DTypeError>([&] {
                    sgd_step(half, View{}, half, View{}, {0.1, 0, 0, false});
                  }),
                  "f32 or f64");
}

TEST_F(CudaOptimizer, AFactorScalesGradientsAndZeroLeavesTheStepOut) {
  const Tensor w = noise({1003}, DType::f32, 1), g = noise({1003}, DType::f32, 2), m = noise({1003}, DType::f32, 3),
               v = noise({1003}, DType::f32, 4, 0, 1);
  for (float factor : {0.25f, 0.0f}) {
    const Tensor f = full({1}, factor, DType::f32, kCuda), half_g = g * double(factor);
    const Tensor sw = to(w, kCuda), aw = to(w, kCuda), am = to(m, kCuda), av = to(v, kCuda), dg = to(g, kCuda);
    sgd_step(sw, View{}, dg, f, {0.1, 0, 0, false}),
        adam_step(aw, am, av, dg, f, {1e-3, 0.9, 0.999, 1e-8, 0, false, 3});
    const Tensor hw = to(to(w, kCuda), Device{}), hm = to(to(m, kCuda), Device{}), hv = to(to(v, kCuda), Device{});
    if (factor != 0) adam_step(hw, hm, hv, half_g, View{}, {1e-3, 0.9, 0.999, 1e-8, 0, false, 3});
    expect_close(sw, factor == 0 ? w : w - half_g * 0.1, 1e-6, 1e-6, "sgd");
    expect_close(aw, hw, 1e-6, 1e-6, "adam"), expect_close(am, hm, 1e-6, 1e-6, "m"),
        expect_close(av, hv, 1e-6, 1e-6, "v");
  }
}

TEST_F(CudaOptimizer, LarsEqualsTheCpu) {
  // Elements 0-99 are a parameter of one axis, 112-1411 one of three cells.
  const std::vector<int64_t> table = {0, 100, 0, 0, 112, 612, 0, 3, 612, 1112, 1, 3, 1112, 1412, 2, 3};
  for (DType dtype : {DType::f32, DType::f64})
    for (double momentum : {0.0, 0.9})
      for (float factor : {1.0f, 0.5f, 0.0f}) {
        const Tensor w = noise({1424}, dtype, 1), g = noise({1424}, dtype, 2), v = noise({1424}, dtype, 3);
        Tensor found[2][3];
        for (int on = 0; on < 2; ++on) {
          const Device device = on ? kCuda : Device{};
          const Tensor cells = from_host(table, {4, 4}, device), squares = zeros({4, 2}, DType::f64, device);
          const Tensor of_w({4}, DType::f64, device), of_g({4}, DType::f64, device);
          const Tensor f = full({1}, factor, DType::f32, device), dg = to(g, device);
          auto& [dw, dv, sums] = found[on];
          dw = to(to(w, kCuda), device), dv = to(to(v, kCuda), device), sums = squares;
          cell_squares(of_w, dw, cells, 0), cell_squares(of_g, dg, cells, 0);
          copy(squares.window({4}, {2}, 0), of_w), cell_squares(squares.window({4}, {2}, 1), dg, cells, 0);
          const Tensor all_w = zeros({4}, DType::f64, device), all_g = zeros({4}, DType::f64, device);
          parameter_squares(all_w, of_w, cells), parameter_squares(all_g, of_g, cells);
          lars_step(dw, momentum > 0 ? View(dv) : View{}, dg, all_w, all_g, cells, factor == 1 ? View{} : View(f),
                    {0.1, momentum, 0.01, 0.02, momentum > 0, factor < 1});
        }
        const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-13;
        expect_close(found[1][2], found[0][2], 1e-13, 0, "squares");
        expect_close(found[1][0], found[0][0], tolerance, tolerance, "w");
        expect_close(found[1][1], found[0][1], tolerance, tolerance, "v");
        EXPECT_EQ(values(found[0][0]) == values(w), factor == 0);
      }
}

TEST_F(CudaOptimizer, GradientsAreMeasuredAndDecidedOnAsOnTheCpu) {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {1, 7, 1024, 100'003})
      for (int64_t offset : {0, 1}) {
        const Tensor x = noise({n}, dtype, 5);
        const Guarded gx(x, offset);
        const int64_t first = 5, some = n / 3 + first;
        const Tensor cells = from_host(std::vector<int64_t>{first, some, some, some, some, n + first}, {3, 2});
        Tensor y({3}, DType::f64), gy({3}, DType::f64, kCuda);
        cell_squares(y, x, cells, first), cell_squares(gy, gx.x, to(cells, kCuda), first);
        expect_close(gy, y, 1e-12, 0, concat(dtype, " n ", n));
      }
  const double inf = std::numeric_limits<double>::infinity();
  for (double squares : {4.0, 1e12, inf, -inf})  // the last: NaN
    for (double most : {0.0, 0.5})
      for (bool scaled : {false, true}) {
        Tensor all[2][4];
        for (int on = 0; on < 2; ++on) {
          const Device device = on ? kCuda : Device{};
          auto& [factor, norm, scale, sum] = all[on];
          factor = zeros({1}, DType::f32, device), norm = zeros({1}, DType::f32, device),
          sum = full({1000}, squares / 1000, DType::f64, device);
          scale = to(from_host(std::vector<float>{1024, 1}, {2}), device);
          gradient_factor(factor, norm, scaled ? View(scale) : View{}, sum, {most, 2, 0.5, 2});
        }
        for (int i = 0; i < 3; ++i)
          expect_close(all[1][i], all[0][i], 1e-6, 0, concat("squares ", squares, " most ", most, " number ", i));
      }
}

}  // namespace
}  // namespace ringtape
