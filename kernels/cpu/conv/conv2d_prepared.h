#pragma once
#include "kernels/conv2d_prepared.h"
#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/by_unit.h"
#include "kernels/cpu/vector/vector.h"

RT_ISA_BEGIN

// A call of conv2d_prepared.
struct PreparedCall {
  const PreparedConv& conv;
  View y, x, residual;
  bool relu;
};

// Each algorithm packs the weights, f32, into conv.w, and convolves by them. Of f32 and 16-bit types that are
// converted:
void pack_direct(View w, PreparedConv& conv);
void run_direct(const PreparedCall& call);
void pack_winograd(View w, PreparedConv& conv);
void run_winograd(const PreparedCall& call);
// Of bf16 by AVX512-BF16, and by AMX, which comes with it.
RT_BY_UNIT(pack_winograd_bf16, void(View w, PreparedConv& conv));
RT_BY_UNIT(run_winograd_bf16, void(const PreparedCall& call));

namespace {

// Whether products multiply bf16 itself, in pairs.
inline bool by_unit(const PreparedConv& conv) {
  return conv.dtype == DType::bf16 && conv.unit.unit != Bf16Unit::converted;
}

// A view of n such images, without data.
inline View images_of(int64_t n, const Shape& each) {
  View v;
  v.rank = 4, v.dims[0] = n;
  for (int i = 0; i < 3; ++i) v.dims[i + 1] = each[i];
  return v;
}

inline ConvSizes sizes_of(const PreparedConv& conv, int64_t n) {
  const Shape& w = conv.weights;
  return {images_of(n, conv.output), images_of(n, conv.image), images_of(w[0], {w[1], w[2], w[3]})};
}

// What becomes of sums: bias, residual and activation.
template <class T> struct Finish {
  const float* bias;  // of whole vectors
  const T* residual;
  bool relu;

  explicit Finish(const PreparedCall& call)
      : bias(call.conv.b.data<float>()), residual(call.residual.as<T>()), relu(call.relu) {}
  // Of the first `count` lanes, from element `at` of y on, which has this channel.
  RT_INLINE Vec<float> operator()(Vec<float> sum, int64_t at, int64_t channel, int64_t count) const {
    sum += load(bias + channel);
    if (residual) sum += load_converted(residual + at, count);
    return relu ? (sum < 0 ? Vec<float>{} : sum) : sum;
  }
};

}  // namespace

RT_ISA_END
