// What the samples of the ops' records are too small to reach in batch normalisation and pooling: channels of every
// number, misaligned operands, rows split among blocks, running statistics.
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/batch_norm.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/pool.h"
#include "nn/nn.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::kCuda;
using test::kFloats;
using test::values;

constexpr Activation kRelu = Activation::relu;

using CudaBatchNorm = test::OnCuda;
using CudaPool = test::OnCuda;

double epsilon(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 4e-3 : 2e-2;
}
DType statistics_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Tensor noise(const Shape& shape, DType dtype, uint64_t seed, double low = -2, double high = 2) {
  Tensor x(shape, dtype);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, low, high);
  return x;
}
// The same on a device, `offset` elements into a buffer.
Tensor placed(const Tensor& x, Device device, int64_t offset) {
  const Tensor y =
      Tensor({x.size() + offset}, x.dtype(), device).window(x.shape(), contiguous_strides(x.shape()), offset);
  copy(y, to(x, device));
  return y;
}

struct Results {
  Tensor mean, var, y, mask, db, dw, dx, dresidual;
};
// Every kernel once, on operands that lie `offset` elements into their buffers.
Results run(Device device, int64_t offset, int64_t m, int64_t c, DType dtype, bool residual, Activation f) {
  const auto input = [&](const Shape& shape, DType d, uint64_t seed) {
    return placed(noise(shape, d, seed), device, offset);
  };
  const DType wide = statistics_dtype(dtype);
  const Tensor x = input({m, c}, dtype, 1), z = input({m, c}, dtype, 2), dy = input({m, c}, dtype, 3);
  const Tensor w = input({c}, wide, 4), b = input({c}, wide, 5);
  const auto output = [&](const Shape& shape, DType d) { return placed(full(shape, 77, d), device, offset); };
  Results r{output({c}, wide),     output({c}, wide),
            output({m, c}, dtype), zeros({batch_norm_mask_bytes(m * c)}, DType::u8, device),
            output({c}, wide),     output({c}, wide),
            output({m, c}, dtype), output({m, c}, dtype)};
  const View none, mask = f == kRelu ? View(r.mask) : none;
  batch_norm_statistics(r.mean, r.var, x, {});
  batch_norm_forward(r.y, mask, x, residual ? View(z) : none, r.mean, r.var, w, b, 1e-3, f);
  batch_norm_backward_sums(r.db, r.dw, dy, mask, x, r.mean, r.var, 1e-3);
  batch_norm_backward(r.dx, residual ? View(r.dresidual) : none, dy, mask, x, r.mean, r.var, w, r.db, r.dw, m, 1e-3);
  return r;
}

// The bits say which y are above 0. A GPU rounds a product and a sum at once, so those of about 0 may differ.
void expect_same_mask(const Results& a, const Results& b) {
  const std::vector<double> in_a = values(a.mask), in_b = values(b.mask), y_a = values(a.y), y_b = values(b.y);
  const auto bit = [](const std::vector<double>& mask, size_t i) { return int(mask[i / 8]) >> i % 8 & 1; };
  for (size_t i = 0; i < y_a.size(); ++i) {
    const double differing = bit(in_a, i) == bit(in_b, i) ? 0 : std::max(y_a[i], y_b[i]);
    EXPECT_LE(differing, 1e-5) << "element " << i;
  }
}

TEST_F(CudaBatchNorm, EverySizeDTypeAndAlignment) {
  for (DType dtype : kFloats)
    for (const auto& [m, c] : {std::pair<int64_t, int64_t>{2, 1},
                               {64, 1},
                               {3, 5},
                               {67, 8},
                               {33, 24},
                               {9, 264},
                               {130, 17},
                               {5, 2056},
                               {1, 40}})
      for (int64_t offset : {0, 1})
        for (const auto& [residual, f] : {std::pair{false, Activation::none}, {false, kRelu}, {true, kRelu}}) {
          SCOPED_TRACE(concat(dtype, ' ', m, " x ", c, " offset ", offset, residual ? ", residual" : "",
                              f == kRelu ? ", relu" : ""));
          const Results cuda = run(kCuda, offset, m, c, dtype, residual, f),
                        cpu = run(Device{}, offset, m, c, dtype, residual, f);
          const double tolerance = epsilon(dtype), sums = epsilon(statistics_dtype(dtype)) * double(m);
          expect_close(cuda.mean, cpu.mean, sums, sums, "mean"), expect_close(cuda.var, cpu.var, sums, sums, "var");
          expect_close(cuda.y, cpu.y, tolerance, tolerance, "y");
          expect_same_mask(cuda, cpu);
          expect_close(cuda.db, cpu.db, sums, sums, "db"), expect_close(cuda.dw, cpu.dw, sums, 10 * sums, "dw");
          expect_close(cuda.dx, cpu.dx, tolerance, 10 * tolerance, "dx"),
              expect_close(cuda.dresidual, cpu.dresidual, 0, 0, "dresidual");
        }
}

// Packs are wide only if all operands are aligned.
TEST_F(CudaBatchNorm, OneOperandIsMisaligned) {
  constexpr int64_t m = 9, c = 24;
  for (DType dtype : kFloats) {
    const DType wide = statistics_dtype(dtype);
    const auto run = [&](Device device, int misaligned) {
      const auto image = [&](int which) {
        return placed(noise({m, c}, dtype, uint64_t(which)), device, which == misaligned);
      };
      const auto channels = [&](uint64_t seed) { return to(noise({c}, wide, seed, 0.5, 1), device); };
      const Tensor x = image(1), z = image(2), dy = image(3), mean = channels(4), var = channels(5), w = channels(6),
                   b = channels(7), db = channels(8), dw = channels(9);
      const Tensors out{image(10), image(11), image(12), db, dw};
      const Tensor mask = zeros({batch_norm_mask_bytes(m * c)}, DType::u8, device);
      batch_norm_forward(out[0], mask, x, z, mean, var, w, b, 1e-3, kRelu);
      batch_norm_backward_sums(db, dw, dy, mask, x, mean, var, 1e-3);
      batch_norm_backward(out[1], out[2], dy, mask, x, mean, var, w, db, dw, m, 1e-3);
      return out;
    };
    const Tensors want = run(kCuda, 0);
    for (const int misaligned : {1, 2, 3, 10, 11, 12}) {
      const Tensors got = run(kCuda, misaligned);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(test::same_bytes(contiguous(to(got[i], Device{})), to(want[i], Device{})))
            << concat(dtype, ", ", misaligned, " misaligned, result ", i);
    }
  }
}

// A batch of three parts, of which some begin within a pack or a byte of the mask, and some are split among blocks.
TEST_F(CudaBatchNorm, PartsHaveTheBytesThatTheyHaveAlone) {
  constexpr int64_t kParts = 3;
  const auto trained = [](Tensor x, Tensor z, Tensor w, const Tensor& dy, int64_t parts) {
    x = leaf(x), z = leaf(z), w = leaf(w);
    const Tensor y = batch_norm(x, w, {}, {}, {.parts = parts}, kRelu, z);
    backward(y, dy);
    return Tensors{y.detach(), grad(x), grad(z), grad(w)};
  };
  for (const Device device : {kCuda, Device{}})
    for (const DType dtype : kFloats)
      for (const auto& [rows, channels] :
           {std::pair{2, 5}, {9, 1}, {7, 3}, {4100, 1}, {6, 8}, {8300, 17}, {2100, 64}}) {
        const int m = rows, c = channels;  // for lambdas
        SCOPED_TRACE(concat(device, ", ", dtype, ", ", m, " x ", c));
        const auto input = [&](uint64_t seed) { return to(noise({kParts * m, c}, dtype, seed), device); };
        const Tensor x = input(1), z = input(2), dy = input(3), w = to(noise({c}, statistics_dtype(dtype), 4), device);
        const Tensors together = trained(x, z, w, dy, kParts);
        Tensor dw = zeros({c}, DType::f64, device);
        for (int64_t p = 0; p < kParts; ++p) {
          const auto part = [p, m = m](const Tensor& t) { return slice(t, 0, p * m, (p + 1) * m); };
          const Tensors alone = trained(part(x), part(z), w, part(dy), 1);
          for (size_t i = 0; i < 3; ++i)
            EXPECT_TRUE(test::same_bytes(to(contiguous(part(together[i])), Device{}), to(alone[i], Device{})))
                << "result " << i << " of part " << p;
          dw = dw + cast(alone[3], DType::f64);
        }
        expect_close(cast(together[3], DType::f64), dw, 1e-5, 1e-4, "dw");
      }
}

TEST_F(CudaBatchNorm, RowsSplitAmongBlocks) {
  for (DType dtype : kFloats)
    for (int64_t c : {17, 8}) {
      SCOPED_TRACE(concat(dtype, ", ", c, " channels"));
      const Results cuda = run(kCuda, 0, 8300, c, dtype, true, kRelu),
                    cpu = run(Device{}, 0, 8300, c, dtype, true, kRelu);
      const double sums = epsilon(statistics_dtype(dtype)), tolerance = epsilon(dtype);
      expect_close(cuda.mean, cpu.mean, sums, sums, "mean"), expect_close(cuda.var, cpu.var, sums, sums, "var");
      expect_close(cuda.db, cpu.db, 10 * sums, 200 * sums, "db"),
          expect_close(cuda.dw, cpu.dw, 10 * sums, 200 * sums, "dw");
      expect_close(cuda.dx, cpu.dx, tolerance, tolerance, "dx");
    }
}

TEST_F(CudaBatchNorm, NoRows) {
  for (DType dtype : kFloats) {
    const Results none = run(kCuda, 0, 0, 5, dtype, true, kRelu);
    for (const Tensor& t : {none.mean, none.var, none.db, none.dw}) EXPECT_EQ(values(t), std::vector<double>(5));
  }
}

TEST_F(CudaBatchNorm, MergesTheStatisticsOfParts) {
  for (DType dtype : {DType::f32, DType::f64})
    for (const auto& [parts, c] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {7, 300}}) {
      const Tensor own = noise({parts, 2 * c + 1}, DType::f64, 1, 0, 9);
      for (int64_t p = 0; p < parts; ++p)
        fill(own.window({1}, {1}, p * (2 * c + 1) + 2 * c), double(p % 3 == 2 ? 0 : 2 + p));
      const auto merged = [&, c = c](Device device) {
        const auto output = [&](int64_t n) { return full({n}, 77, dtype, device); };
        const Tensors out{output(c), output(c), output(c), output(1)};
        batch_norm_merge(out[0], out[1], out[2], out[3], to(own, device));
        return out;
      };
      const Tensors cuda = merged(kCuda), cpu = merged(Device{});
      const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-7;
      for (size_t i = 0; i < cuda.size(); ++i)
        expect_close(cuda[i], cpu[i], tolerance, 0, concat(dtype, " output ", i));
    }
}

TEST_F(CudaBatchNorm, RunningStatisticsFollowThoseOfAnotherOrigin) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const auto updated = [&](Device device) {
      const Tensor mean = to(noise({300}, dtype, 1), device), var = to(noise({300}, dtype, 2, 0, 4), device),
                   kept = to(noise({300}, dtype, 3), device), kept_var = to(noise({300}, dtype, 4, 0, 4), device),
                   batches = full({1}, 8, DType::i64, device);
      batch_norm_running(mean, var, {kept, kept_var, batches, 0.3, 1.25});
      return Tensors{kept, kept_var, batches};
    };
    const Tensors cuda = updated(kCuda), cpu = updated(Device{});
    for (size_t i = 0; i < cuda.size(); ++i) expect_close(cuda[i], cpu[i], 1e-6, 1e-6, concat("output ", i));
  }
}

TEST_F(CudaBatchNorm, StatisticsMayBeDouble) {
  const Tensor x = noise({37, 6}, DType::f32, 2, -3, 5);
  const auto found = [&](Device device) {
    const Tensors out{full({6}, 77, DType::f64, device), full({6}, 77, DType::f64, device)};
    batch_norm_statistics(out[0], out[1], to(x, device), {});
    return out;
  };
  const Tensors cuda = found(kCuda), cpu = found(Device{});
  for (size_t i = 0; i < cuda.size(); ++i) expect_close(cuda[i], cpu[i], 1e-6, 0, concat("output ", i));
}

TEST_F(CudaBatchNorm, RunningStatisticsStayOnTheDevice) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    nn::BatchNorm cuda(5), cpu(5);
    nn::cast_to(cuda, dtype), nn::cast_to(cpu, dtype);
    nn::move_to(cuda, kCuda);
    for (uint64_t step = 0; step < 3; ++step) {
      const Tensor x = noise({7, 5}, dtype, step);
      expect_close(cuda(to(x, kCuda)), cpu(x), epsilon(dtype), epsilon(dtype), "y");
    }
    expect_close(cuda.running().mean, cpu.running().mean, 1e-6, 1e-6, "running mean");
    expect_close(cuda.running().var, cpu.running().var, 1e-6, 1e-6, "running var");
    EXPECT_EQ(cuda.running().batches.item(), 3);
    cuda.train(false), cpu.train(false);
    const Tensor x = noise({2, 5}, dtype, 9);
    expect_close(cuda(to(x, kCuda)), cpu(x), epsilon(dtype), epsilon(dtype), "evaluation");
  }
}

TEST_F(CudaPool, EveryDTypeAndAlignment) {
  struct Windows {
    int64_t r, s;
    Window window;
  };
  for (DType dtype : kFloats)
    for (int64_t channels : {1, 3, 4, 8})
      for (int64_t offset : {0, 1})
        for (const auto& [r, s, window] :
             {Windows{2, 2, square_window(2)}, {3, 3, square_window(2, 1)}, {2, 3, {1, 2, 0, 1, 2, 1}}}) {
          SCOPED_TRACE(concat(dtype, " channels ", channels, " offset ", offset, " window ", r, 'x', s));
          const Shape image{2, 6, 7, channels}, result{2, window.rows(6, r), window.columns(7, s), channels};
          const auto run = [&, r = r, s = s, window = window](Device device) {
            const Tensor x = placed(noise(image, dtype, 1), device, offset),
                         dy = placed(noise(result, dtype, 2), device, offset);
            const Tensor y = placed(full(result, 77, dtype), device, offset),
                         dx = placed(full(image, 77, dtype), device, offset);
            const Tensor index = placed(full(result, 77, DType::i32), device, offset), mean = empty_like(y),
                         dmean = empty_like(dx);
            max_pool2d_forward(y, index, x, r, s, window);
            max_pool2d_backward(dx, dy, index, r, s, window);
            avg_pool2d_forward(mean, x, r, s, window);
            avg_pool2d_backward(dmean, dy, r, s, window);
            return Tensors{y, index, dx, mean, dmean};
          };
          const Tensors cuda = run(kCuda), cpu = run(Device{});
          for (size_t i = 0; i < cuda.size(); ++i) {
            const double tolerance = i > 1 ? epsilon(dtype) : 0;  // maxima and their places are exact
            expect_close(cuda[i], cpu[i], tolerance, tolerance, concat("output ", i));
          }
        }
}

TEST_F(CudaPool, OneOperandIsMisaligned) {
  const Window window = square_window(2);
  for (DType dtype : kFloats) {
    const auto run = [&](int misaligned) {
      const auto image = [&](int which, int64_t side, DType d) {
        return placed(noise({2, side, side, 8}, d, uint64_t(which)), kCuda, which == misaligned);
      };
      const Tensor x = image(1, 6, dtype), dy = image(2, 3, dtype);
      const Tensors out{image(3, 3, dtype), placed(full({2, 3, 3, 8}, 77, DType::i32), kCuda, misaligned == 4),
                        image(5, 6, dtype), image(6, 3, dtype), image(7, 6, dtype)};
      max_pool2d_forward(out[0], out[1], x, 2, 2, window);
      max_pool2d_backward(out[2], dy, out[1], 2, 2, window);
      avg_pool2d_forward(out[3], x, 2, 2, window);
      avg_pool2d_backward(out[4], dy, 2, 2, window);
      return out;
    };
    const Tensors want = run(0);
    for (int misaligned = 1; misaligned <= 7; ++misaligned) {
      const Tensors got = run(misaligned);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(test::same_bytes(contiguous(to(got[i], Device{})), to(want[i], Device{})))
            << concat(dtype, ", ", misaligned, " misaligned, result ", i);
    }
  }
}

TEST_F(CudaPool, ANaNWins) {
  const Tensor x = from_host(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN(), 7, 2}, {1, 2, 2, 1});
  expect_close(max_pool2d(to(x, kCuda), 2, 2, square_window(2)), max_pool2d(x, 2, 2, square_window(2)), 0, 0, "NaN");
}

}  // namespace
}  // namespace ringtape
