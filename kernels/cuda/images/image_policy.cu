#include "kernels/image_policy.h"

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/image_policy_pixels.h"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;

struct Frame {
  int height, width, channels;
  __host__ __device__ int pixels() const { return height * width; }
  __host__ __device__ int bytes() const { return pixels() * channels; }
};

// What the threads of a block share.
struct Shared {
  float* product;      // kProducts
  int32_t* histogram;  // of each channel: 256
  uint8_t* levels;     // of each channel: 256
};

// All threads of the block call every function below, under uniform conditions. Each operation reads `from` and writes
// another image.

__device__ int32_t luma_of(const uint8_t* x, int channels) { return channels == 1 ? x[0] : luma(x[0], x[1], x[2]); }

__device__ void move_pixels(uint8_t* to, const uint8_t* from, const Frame& f, const Affine& a) {
  for (int i = int(threadIdx.x); i < f.pixels(); i += kThreads) {
    const int row = i / f.width, column = i % f.width;
    const int pixel = pixel_at(a.y + row * a.y_row + column * a.y_column, a.x + row * a.x_row + column * a.x_column,
                               f.height, f.width);
    for (int c = 0; c < f.channels; ++c) to[i * f.channels + c] = pixel < 0 ? uint8_t(0) : from[pixel * f.channels + c];
  }
}

// Fills levels.
__device__ void make_levels(const Shared& s, const uint8_t* from, const Frame& f, const PolicyParams& p,
                            const PolicyStep& step) {
  const int me = int(threadIdx.x);
  if (by_histogram(step.op)) {
    for (int i = me; i < 256 * f.channels; i += kThreads) s.histogram[i] = 0;
    __syncthreads();
    for (int i = me; i < f.bytes(); i += kThreads) atomicAdd(s.histogram + i % f.channels * 256 + from[i], 1);
    __syncthreads();
    if (me % kWarp == 0 && me / kWarp < f.channels) {
      const int at = me / kWarp * 256;
      if (step.op == PolicyOp::equalize) equalized_levels(s.levels + at, s.histogram + at);
      else auto_contrast_levels(s.levels + at, s.histogram + at);
    }
  } else {
    int32_t mean = 0;
    if (step.op == PolicyOp::contrast) {
      int64_t sum = 0;
      for (int i = me; i < f.pixels(); i += kThreads) sum += luma_of(from + i * f.channels, f.channels);
      mean = mean_luma(block_reduce<Sum>(sum), f.pixels());
    }
    for (int i = me; i < 256 * f.channels; i += kThreads)
      s.levels[i] = changed_level(p, step, i % 256, mean, s.product);
  }
  __syncthreads();
}

__device__ void change_color(uint8_t* to, const uint8_t* from, const Frame& f, const float* product) {
  for (int i = int(threadIdx.x); i < f.pixels(); i += kThreads) {
    const uint8_t* const x = from + 3 * i;
    const int32_t gray = luma(x[0], x[1], x[2]);
    for (int c = 0; c < 3; ++c) to[3 * i + c] = blended_by(gray, x[c], product);
  }
}

__device__ void sharpen(uint8_t* to, const uint8_t* from, const Frame& f, const float* product) {
  const int step = f.channels, row_bytes = f.width * step;
  for (int i = int(threadIdx.x); i < f.bytes(); i += kThreads) {
    const int row = i / row_bytes, column = i % row_bytes / step;
    uint8_t level = from[i];
    if (row > 0 && row + 1 < f.height && column > 0 && column + 1 < f.width) {
      int32_t sum = 0;
      for (int near = i - row_bytes; near <= i + row_bytes; near += row_bytes)
        sum += from[near - step] + from[near] + from[near + step];
      level = blended_by(smoothed(sum, level), level, product);
    }
    to[i] = level;
  }
}

// Whether it has written `to`; otherwise the image stays.
__device__ bool apply(const Shared& s, uint8_t* to, const uint8_t* from, const Frame& f, const PolicyParams& p,
                      const PolicyStep& step) {
  if (step.op == PolicyOp::identity || (step.op == PolicyOp::color && f.channels == 1)) return false;
  for (int i = int(threadIdx.x); i < kProducts; i += kThreads)
    s.product[i] = blend_product(p.factor[step.negative][step.bin], i);
  __syncthreads();
  if (is_move(step.op))
    move_pixels(to, from, f, p.moves[int(step.op) - int(PolicyOp::shear_x)][step.negative][step.bin]);
  else if (by_level(step.op)) {
    make_levels(s, from, f, p, step);
    for (int i = int(threadIdx.x); i < f.bytes(); i += kThreads) to[i] = s.levels[i % f.channels * 256 + from[i]];
  } else if (step.op == PolicyOp::color) change_color(to, from, f, s.product);
  else sharpen(to, from, f, s.product);
  __syncthreads();
  return true;
}

// A block changes one image at a time, in the two images of `scratch` that it has.
template <class T>
__global__ void __launch_bounds__(kThreads)
    image_policy_kernel(T* y, const uint8_t* images, const int64_t* index, const T* table, uint8_t* scratch,
                        int64_t batch, Frame f, PolicyParams p) {
  SHARED_ARRAY(float, product, [kProducts]);
  SHARED_ARRAY(int32_t, histogram, [3 * 256]);
  SHARED_ARRAY(uint8_t, levels, [3 * 256]);
  const Shared s{product, histogram, levels};
  uint8_t* const own = scratch + int64_t(blockIdx.x) * 2 * f.bytes();
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const int64_t sample = index[b];
    const uint8_t* x = images + (p.gathered ? b : sample) * f.bytes();
    for (int64_t k = 0; k < p.ops; ++k) {
      uint8_t* const to = own + (x == own ? f.bytes() : 0);
      if (apply(s, to, x, f, p, draw_policy_step(p, sample, k))) x = to;
    }
    for (int i = int(threadIdx.x); i < f.bytes(); i += kThreads)
      y[b * f.bytes() + i] = table[i % f.channels * 256 + x[i]];
    __syncthreads();  // before the next image is written there
  }
}

}  // namespace

void image_policy(View y, View images, View index, View table, PolicyParams params) {
  if (y.size() == 0) return;
  const Frame f{int(y.dims[1]), int(y.dims[2]), int(y.dims[3])};
  const Grid grid = covering_with_scratch(y.device, y.dims[0], kThreads);
  const Tensor scratch({int64_t(grid.blocks.x) * 2 * f.bytes()}, DType::u8, y.device);
  dispatch_image(y.dtype, [&]<class T>() {
    launch<image_policy_kernel<T>>(y.device, grid, static_cast<T*>(y.data), images.as<uint8_t>(), index.as<int64_t>(),
                                   static_cast<const T*>(table.data), View(scratch).as<uint8_t>(), y.dims[0], f,
                                   params);
  });
}

}  // namespace ringtape::cuda
