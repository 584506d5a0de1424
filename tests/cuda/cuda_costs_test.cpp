// What a training step asks of the CUDA runtime and kernels of the memory: the same on every GPU, so that it can be
// counted without one. The numbers are those of today: a change may lower them.
#include <fstream>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "emulation/emulation.h"
#include "emulation/traffic.h"
#include "kernels/batch_norm.h"
#include "kernels/fill.h"
#include "nn/nn.h"
#include "nn/resnet.h"
#include "tests/support/cuda_support.h"
#include "tests/support/traffic.h"
#include "tests/support/wgmma_cases.h"
#include "train/optim/optimizers.h"

namespace ringtape {
namespace {

#if defined(RINGTAPE_EMULATION_BUILD)

using test::kCuda;
using Calls = std::map<std::string, uint64_t>;

struct Step {
  nn::ResNet model{{.width = 2}};
  Tensor x{Shape{2, 4, 4, 3}, DType::f32, kCuda}, labels{Shape{2}, DType::i64, kCuda};
  std::unique_ptr<FlatParameters> parameters;
  std::unique_ptr<Optimizer> optimizer;

  DType dtype;

  explicit Step(DType d) : dtype(d) {
    nn::move_to(model, kCuda);
    parameters = std::make_unique<FlatParameters>(model);
    optimizer = make_optimizer(Selection(optimizers(), "sgd"), *parameters);
    fill_uniform(x, RandomState{1, Stream::test, 0}, -1, 1);
    fill(labels, 1);
  }
  void operator()() {
    optimizer->zero_grad();
    backward([&] {
      const Autocast narrow(dtype);
      return cross_entropy(model(x), labels);
    }());
    optimizer->step(0.1);
  }
};

// Of one step, once everything that is made at first use is there.
Calls calls_of(const std::function<void()>& step) {
  step(), step();
  const Calls before = emulation::calls();
  step();
  Calls now = emulation::calls();
  for (const auto& [name, count] : before) now[name] -= count;
  std::erase_if(now, [](const auto& entry) { return entry.second == 0; });
  return now;
}

TEST(CudaCosts, OfAStepOfResNet18) {
  RT_NEEDS_CUDA();
  const auto most = [](uint64_t kernels, uint64_t buffers) {
    return Calls{{"enqueue_kernel", kernels},
                 {"cublasLtMatmul", 3},
                 {"cudaMallocFromPoolAsync", buffers},
                 {"cudaFreeAsync", buffers}};
  };
  for (const auto& [dtype, allowed] : {std::pair{DType::f32, most(196, 194)}, {DType::bf16, most(241, 239)}}) {
    Step step(dtype);
    for (const auto& [name, count] : calls_of([&] { step(); })) {
      const auto limit = allowed.find(name);
      EXPECT_LE(count, limit == allowed.end() ? 0 : limit->second) << name << " in " << name_of(dtype);
    }
  }
}

// Parts cost a sum of their gradients and of their running statistics, however many there are.
TEST(CudaCosts, OfBatchNormInParts) {
  RT_NEEDS_CUDA();
  nn::BatchNorm layer(16);
  nn::move_to(layer, kCuda);
  const Tensor dy = full({32, 16, 16, 16}, 1, DType::f32, kCuda), x = leaf(rand(dy.shape(), -1, 1, DType::f32, kCuda));
  const auto kernels = [&](int64_t parts) {
    layer.split(parts);
    const auto step = [&] {
      for (const Tensor& t : {x, layer.weight, layer.bias}) zero_grad(t);
      backward(layer(x, Activation::relu), dy);
    };
    return calls_of(step).at("enqueue_kernel");
  };
  const uint64_t one = kernels(1);
  EXPECT_LE(one, 7u);
  for (const int64_t parts : {2, 8, 32}) EXPECT_LE(kernels(parts), one + 3) << parts << " parts";
}

// The passes over tensors, each element once, in whole sectors; besides, values of channels and partial sums.
TEST(CudaCosts, OfBatchNorm) {
  RT_NEEDS_CUDA();
  const Shape shape{512, 64};
  const Tensor x(shape, DType::bf16, kCuda), z = empty_like(x), y = empty_like(x), dx = empty_like(x);
  const Tensor mask({batch_norm_mask_bytes(x.size())}, DType::u8, kCuda);
  for (const Tensor& t : {x, z, y}) fill_uniform(t, RandomState{1, Stream::test, 0}, -1, 1);
  const Tensor mean({64}, DType::f32, kCuda), var = empty_like(mean), w = empty_like(mean), b = empty_like(mean),
                                              db = empty_like(mean), dw = empty_like(mean);
  for (const Tensor& t : {w, b}) fill(t, 1);
  const auto expect_passes = [&](const char* what, uint64_t passes, const std::function<void()>& f) {
    const emulation::Traffic t = emulation::traffic_of(f);
    EXPECT_EQ(t.bytes, passes * uint64_t(x.size()) * 2) << what;
    EXPECT_EQ(t.sectors * emulation::Traffic::kSector, t.bytes) << what;
    EXPECT_EQ(t.uneven, 0u) << what;
  };
  expect_passes("statistics", 1, [&] { batch_norm_statistics(mean, var, x, {}); });
  expect_passes("forward", 3, [&] { batch_norm_forward(y, mask, x, z, mean, var, w, b, 1e-5, Activation::relu); });
  expect_passes("sums", 2, [&] { batch_norm_backward_sums(db, dw, y, mask, x, mean, var, 1e-5); });
  expect_passes("gradients", 4, [&] { batch_norm_backward(dx, z, y, mask, x, mean, var, w, db, dw, 512, 1e-5); });
}

// Steps 6 and 7 of docs/kernels.md, in what the emulation counts of an image of 32x32 places and 64 channels.
TEST(CudaCosts, OfAConvolutionAsThePageShows) {
  RT_NEEDS_CUDA();
  using namespace test::wgmma;
  const Layer c = {1, 32, 64};
  const Operands o = operands(c, DType::bf16, DType::f32, kCuda);
  const std::pair<const char*, std::function<void(bool)>> passes[] = {
      {"forward, with BatchNorm's moments", [&](bool wgmma) { forward({o.x}, o.w, kWindow, wgmma); }},
      {"... of an image normalised on load", [&](bool wgmma) { forward(o.normalized(), o.w, kWindow, wgmma); }},
      {"data gradient + the shortcut's", [&](bool wgmma) { data({o.x}, o.dy, o.w, o.x, wgmma); }},
      {"weight gradient", [&](bool wgmma) { weights({o.x}, o.dy, c.weights(), wgmma); }}};
  forward({o.x}, o.w, kWindow, true);  // the first time the GPU is asked what descriptors mean
  std::string table;
  for (const auto& of : passes)
    for (const bool wgmma : {false, true}) {
      const emulation::Traffic t = emulation::traffic_of([&] { of.second(wgmma); });
      table += concat("| ", wgmma ? "" : of.first, " | ", wgmma ? "7" : "6");
      for (const uint64_t n : {t.multiplied, t.products, t.wavefronts, t.requests})
        table += concat(" | ", test::thousands(n));
      table += " |\n";
    }
  std::ifstream in(RINGTAPE_SOURCE_DIR "/docs/kernels.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_NE(page.find(table), std::string::npos) << "docs/kernels.md does not show\n" << table;
}

#endif

}  // namespace
}  // namespace ringtape
