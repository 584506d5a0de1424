#pragma once
#include "core/view.h"
#include "kernels/window.h"

namespace ringtape::cuda {

enum class ConvPass : uint8_t { forward, backward_data, backward_weights, add_backward_data };

// One pass of a convolution by cuDNN's graph API on the compute stream, in NHWC: x (N, H, W, C), w (K, R, S, C /
// groups), y (N, Ho, Wo, K), one of which is the pass's output; add_backward_data adds to x. Contiguous, f32, f16 or
// bf16, accumulated in f32. Uses only engines that are deterministic and, unless Arithmetic::tf32, do not round f32 to
// fewer bits. Returns false without any effect if there is none (other dtypes, misaligned data, an empty operand), or
// if cuDNN is not to be used.
#if RINGTAPE_CUDNN
int64_t cudnn_version();
bool uses_cudnn();  // RINGTAPE_CUDNN; default: unless it is the emulation's, so that tests execute our own kernels
bool cudnn_conv(ConvPass pass, const View& x, const View& w, const View& y, const Window& window);
#else
inline int64_t cudnn_version() { return 0; }
inline bool uses_cudnn() { return false; }
inline bool cudnn_conv(ConvPass, const View&, const View&, const View&, const Window&) { return false; }
#endif

}  // namespace ringtape::cuda
