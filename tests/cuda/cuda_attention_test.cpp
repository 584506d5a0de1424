// Attention on a GPU beside the CPU's in f64: of 16-bit heads by tensor cores where these have whole packs.
#include <functional>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/support/cuda_support.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"
#include "tests/support/traffic.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::noise;
using CudaAttention = test::OnCuda;

struct Case {
  int64_t heads, queries, keys, features, value_features;
  bool causal;
  bool packed() const { return features % 8 == 0 && value_features % 8 == 0 && features <= 128; }
};

// y and the gradients of q, k and v, of which each is in the layout of a projection: (A, rows, H, features).
Tensors results(const Tensors& from, DType dtype, Device device, bool causal) {
  Tensors t;
  for (size_t i = 0; i < 3; ++i) t.push_back(leaf(to(cast(from[i], dtype), device)));
  const Tensor y =
      scaled_dot_product_attention(transpose(t[0], 1, 2), transpose(t[1], 1, 2), transpose(t[2], 1, 2), causal);
  backward(y, transpose(to(cast(from[3], dtype), device), 1, 2));
  Tensors out;
  for (const Tensor& x : {y.detach(), grad(t[0]), grad(t[1]), grad(t[2])})
    out.push_back(cast(to(contiguous(x), Device{}), DType::f64));
  return out;
}

TEST_F(CudaAttention, OfHalvesIsNearThatOfF64) {
  for (const Case& c : {Case{1, 1, 1, 8, 8, false}, Case{2, 65, 70, 64, 64, false}, Case{1, 70, 130, 16, 40, true},
                        Case{1, 66, 33, 72, 128, false}, Case{1, 130, 70, 128, 72, true}, Case{2, 9, 70, 12, 8, false},
                        Case{1, 5, 0, 8, 8, false}}) {
    Tensors x;
    for (const Shape& shape :
         {Shape{1, c.queries, c.heads, c.features}, Shape{1, c.keys, c.heads, c.features},
          Shape{1, c.keys, c.heads, c.value_features}, Shape{1, c.queries, c.heads, c.value_features}})
      x.push_back(cast(cast(noise(shape, 3 + x.size()), DType::bf16), DType::f64));
    const Tensors exact = results(x, DType::f64, Device{}, c.causal);
    for (const auto& [dtype, tolerance] : {std::pair{DType::bf16, 0.02}, {DType::f16, 0.003}}) {
      Tensors found;
      const auto run = [&, dtype = dtype] { found = results(x, dtype, kCuda, c.causal); };
#if defined(RINGTAPE_EMULATION_BUILD)
      EXPECT_EQ(emulation::traffic_of(run).products > 0, c.packed() && c.keys > 0) << c.features;
#else
      run();
#endif
      const char* const names[] = {"y", "dq", "dk", "dv"};
      for (size_t i = 0; i < found.size(); ++i)
        test::expect_close(found[i], exact[i], tolerance, 2 * tolerance,
                           concat(names[i], " ", dtype, " ", c.queries, " x ", c.keys, " x ", c.features));
    }
  }
}

#if defined(RINGTAPE_EMULATION_BUILD)
// Tiles in shared memory are read by whole rows of banks, forward and backward.
TEST_F(CudaAttention, OfTensorCoresHasNoBankConflicts) {
  for (const int64_t features : {int64_t{64}, int64_t{128}}) {
    Tensors x;
    for (size_t i = 0; i < 4; ++i) x.push_back(noise({1, 130, 2, features}, 20 + i));
    const emulation::Traffic t = emulation::traffic_of([&] { results(x, DType::bf16, kCuda, true); });
    EXPECT_GT(t.wavefronts, 1000u) << features;
    EXPECT_EQ(t.conflicts, 0u) << features;
  }
}
#endif

}  // namespace
}  // namespace ringtape
