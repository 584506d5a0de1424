#include "train/run/device_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/bench/on_threads.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/runtime.h"
#include "kernels/arithmetic.h"
#include "kernels/conv_norm.h"
#include "kernels/copy.h"

namespace ringtape {
namespace {

// A computation with its operands in f32 and the longest of its sums.
struct Computation {
  const char* name;
  std::vector<DType> dtypes;
  Tensors operands;
  std::function<Tensors(const Tensors&)> f;
  int64_t terms;
};

// y = conv2d(x, w), and the gradients of x and w for dy.
Tensors convolve(const Tensors& in) {
  const Tensor x = leaf(in[0]), w = leaf(in[1]), y = conv2d(x, w, {}, {.pad_h = 1, .pad_w = 1});
  backward(y, in[2]);
  return {y.detach(), grad(x), grad(w)};
}

std::vector<Computation> computations() {
  using enum DType;
  constexpr int64_t n = 256, images = 2, size = 12, channels = 16;
  const Tensor x = rand({n, n}, -1, 1), w = rand({n, n}, -1, 1);
  const Shape image{images, size, size, channels};
  return {
      {"kernel", {f32, bf16, f16}, {x}, [](const Tensors& in) { return Tensors{softmax(in[0])}; }, n},
      {"product", {f64, f32, bf16, f16}, {x, w}, [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; }, n},
      {"convolution",
       {f32, bf16, f16},
       {rand(image, -1, 1), rand({channels, 3, 3, channels}, -1, 1), rand(image, -1, 1)},
       convolve,
       images * size * size}};  // of the weights' gradient
}

Tensors each(const Tensors& in, const std::function<Tensor(const Tensor&)>& f) {
  Tensors out;
  for (const Tensor& x : in) out.push_back(f(x));
  return out;
}

std::string compare(const Computation& c, DType dtype, Device gpu) {
  const Tensors operands = each(c.operands, [&](const Tensor& x) { return cast(x, dtype); });
  const Tensors expected = c.f(each(operands, [](const Tensor& x) { return cast(x, DType::f64); }));
  const Tensors got = c.f(each(operands, [&](const Tensor& x) { return to(x, gpu); }));
  const double bound = rounding_bound(dtype, c.terms);
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double of_this = relative_error(got[i], expected[i]);
    error = std::isnan(of_this) ? INFINITY : std::max(error, of_this);
  }
  RT_CHECK_AS(Error, error <= bound,
              fmt::format("expected an error of at most {:.1e} of the norm, came {:.1e}", bound, error));
  return fmt::format("error {:.1e} of the norm, at most {:.1e}", error, bound);
}

constexpr double kMaxFusedDifference = 0.02;  // of the norm: other sums move a few roundings, and ReLUs near 0

// A residual block by fused kernels, forward and backward, beside those one by one.
std::string compare_fused(Device gpu) {
  const Shape image{2, 12, 12, kFusedChannels}, filter{kFusedChannels, 3, 3, kFusedChannels};
  Tensors in;
  for (const Shape& shape : {image, filter, filter, image})
    in.push_back(to(cast(rand(shape, -1, 1), DType::bf16), gpu));
  const auto block = [&](bool fused) {
    const ArithmeticScope scope(&Arithmetic::fusing, fused ? Fusing::always : Fusing::never);
    const Tensor x = leaf(in[0]), w = leaf(in[1]), w2 = leaf(in[2]);
    const Tensor scale = to(full({kFusedChannels}, 1), gpu), shift = to(full({kFusedChannels}, 0), gpu);
    const Tensor y = residual_block(x, {w, scale, shift}, {w2, scale, shift}, {}, 1);
    backward(y, in[3]);
    return Tensors{y.detach(), grad(x), grad(w), grad(w2)};
  };
  const Tensors fused = block(true), apart = block(false);
  double error = 0;
  for (size_t i = 0; i < fused.size(); ++i) error = std::max(error, relative_error(fused[i], apart[i]));
  RT_CHECK_AS(Error, error <= kMaxFusedDifference,
              fmt::format("expected a difference of at most {} of the norm from "
                          "the kernels one by one, came {:.1e}",
                          kMaxFusedDifference, error));
  return fmt::format("{:.1e} of the norm from the kernels one by one", error);
}

// A graph does the work that was recorded with the numbers that are there when it is launched.
std::string launch_graph(Device gpu) {
  const Tensor first = to(rand({256, 256}, -1, 1), gpu), second = to(rand({256, 256}, -1, 1), gpu);
  const Tensor x = first.copy_to(gpu), y(x.shape(), x.dtype(), gpu);
  const auto work = [&] { copy(y, softmax(matmul(x, x))); };
  work();  // makes what is made at first use
  const auto graph = runtime(gpu).record(work, gpu.index);
  for (const Tensor& now : {first, second}) {
    copy(x, now);
    graph->launch();
    const Tensor got = y.copy_to(gpu);
    work();
    RT_CHECK_AS(Error, relative_error(got, y) == 0,
                "expected what the same kernels compute one by one, came other numbers");
  }
  return "two launches, the same bits as kernel by kernel";
}

std::string copy_there_and_back(Device gpu) {
  const Tensor x = rand({100'003}, -1, 1), back = to(to(x, gpu), Device{});
  const auto sent = x.span<float>(), came = back.span<float>();
  const auto wrong = std::mismatch(sent.begin(), sent.end(), came.begin()).first - sent.begin();
  RT_CHECK_AS(Error, wrong == x.size(), "expected the same elements, came ", came[size_t(wrong)], " for ",
              sent[size_t(wrong)], " at ", wrong);
  return concat(x.size(), " elements, the same");
}

// Each rank sums whole numbers with the others: the sum is exact in any order.
void all_reduce(comm::Context context, Device gpu) {
  constexpr int64_t n = 100'003;
  const int rank = context.rank, size = context.size;
  comm::ProcessGroup group(comm::p2p_transport(std::move(context), gpu));
  const Tensor y = to(full({n}, rank + 1), gpu);
  group.all_reduce(y).wait();
  const Tensor sums = to(y, Device{});
  const float expected = float(size * (size + 1) / 2);
  const auto all = sums.span<float>();
  const auto wrong = std::find_if(all.begin(), all.end(), [&](float x) { return x != expected; });
  if (wrong != all.end())
    throw CommError(concat("rank ", rank, " on ", gpu, ": expected ", expected, ", came ", *wrong, " at ",
                           wrong - all.begin(), " of ", n));
}

std::string all_reduce_between(int ranks, int gpus) {
  comm::run_on_threads(ranks, [&](comm::Context context) {
    context.timeout = comm::Seconds(30);
    const int index = context.rank % gpus;
    all_reduce(std::move(context), {DeviceType::cuda, index});
  });
  return concat(ranks, " ranks on ", gpus, gpus == 1 ? " GPU" : " GPUs", ", exact");
}

}  // namespace

double relative_error(const Tensor& got, const Tensor& expected) {
  const Tensor a = cast(to(got, Device{}), DType::f64), b = cast(to(expected, Device{}), DType::f64);
  RT_CHECK_AS(ShapeError, a.shape() == b.shape(), "expected ", b.shape(), ", came ", a.shape());
  return std::sqrt(sum(square(a - b)).item() / sum(square(b)).item());
}

double rounding_bound(DType dtype, int64_t terms) {
  const auto half_unit = [](DType d) {
    const int digits = d == DType::bf16 ? 8 : d == DType::f16 ? 11 : d == DType::f32 ? 24 : 53;
    return std::ldexp(1.0, -digits);
  };
  const double sums = half_unit(dtype == DType::f64 ? DType::f64 : DType::f32);
  return half_unit(dtype) + 8 * double(terms) * sums;
}

void check_gpus(const DeviceCheckFn& done) {
  manual_seed(1);
  const ArithmeticScope unmeasured(&Arithmetic::deterministic_convolutions, true);  // no plans in the user's folder
  Device gpu{DeviceType::cuda, 0};
  for (; available(gpu); ++gpu.index) {
    done(run_check(concat(gpu, " copy"), [&] { return copy_there_and_back(gpu); }));
    for (const Computation& c : computations())
      for (const DType dtype : c.dtypes)
        done(run_check(concat(gpu, ' ', c.name, ' ', dtype), [&] { return compare(c, dtype, gpu); }));
    const ArithmeticScope own(&Arithmetic::own_kernels, true);
    for (const Computation& c : computations())
      if (c.name != std::string_view("kernel"))
        done(run_check(concat(gpu, " own ", c.name, " bf16"), [&] { return compare(c, DType::bf16, gpu); }));
    done(run_check(concat(gpu, " fused block bf16"), [&] { return compare_fused(gpu); }));
    done(run_check(concat(gpu, " graph"), [&] { return launch_graph(gpu); }));
  }
  const int gpus = gpu.index;
  if (gpus > 0) done(run_check("all-reduce", [&] { return all_reduce_between(std::max(gpus, 2), gpus); }));
}

}  // namespace ringtape
