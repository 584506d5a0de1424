#pragma once
#include "core/view.h"
#include "kernels/window.h"

namespace ringtape::cuda {

enum class ConvPass : uint8_t { forward, backward_data, backward_weights };

// One pass of a convolution by cuDNN's graph API on the compute stream, in NHWC: x (N, H, W, C), w (K, R, S, C / groups), y
// (N, Ho, Wo, K), of which the pass writes one; contiguous, f32, f16 or bf16, accumulated in f32. Only engines that are deterministic
// and, for f32, do not round it to fewer bits. False, and nothing done, where there is none: other dtypes, misaligned data.
#if RINGTAPE_CUDNN
bool cudnn_conv(ConvPass pass, const View& x, const View& w, const View& y, const Window& window);
#else
inline bool cudnn_conv(ConvPass, const View&, const View&, const View&, const Window&) { return false; }
#endif

}  // namespace ringtape::cuda
