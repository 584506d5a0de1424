#include "kernels/random_view.h"

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/random_view_pixels.h"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;
constexpr size_t kStaticBytes = 1024;  // of shared memory, maximum: the drawn view and a sum

struct Frame {
  int height, width, channels, out_height, out_width;
  Interpolation how;
  int column_taps, row_taps;  // of the largest possible crop
  __host__ __device__ ScaledAxis axis(int64_t from, int64_t to) const { return {from, to, 1, 0, how}; }
  __host__ __device__ int out_pixels() const { return out_height * out_width; }
};

// The weights of an axis: output pixel i has weights[i * stride ..], for `count[i]` input pixels from first[i] on.
struct Axis {
  int32_t *weights, *first, *count;
  int stride;
};

// What the threads of a block share: in shared memory, or in the device's where that is too small. `planes` is the
// view, channels first. `narrow` (with the rows of the crop) and `smooth` (the first pass of the blur) share memory.
struct Shared {
  Axis columns, rows;
  int32_t* blur;
  uint8_t *planes, *narrow;
  uint16_t* smooth;
};

__host__ __device__ size_t rounded(size_t bytes) { return (bytes + 15) / 16 * 16; }

__host__ __device__ size_t shared_bytes(const Frame& f) {
  const size_t words =
      size_t(f.out_width) * size_t(f.column_taps + 2) + size_t(f.out_height) * size_t(f.row_taps + 2) + kMaxRadius + 1;
  const size_t plane = size_t(f.channels) * size_t(f.out_pixels()),
               narrow = size_t(f.channels) * size_t(f.height) * size_t(f.out_width);
  return rounded(4 * words) + rounded(plane) + rounded(narrow > 2 * plane ? narrow : 2 * plane);
}

__device__ Shared divided(unsigned char* bytes, const Frame& f) {
  int32_t* words = reinterpret_cast<int32_t*>(bytes);
  const auto take = [&](int n) { return (words += n) - n; };
  Shared s;
  s.columns = {take(f.out_width * f.column_taps), take(f.out_width), take(f.out_width), f.column_taps};
  s.rows = {take(f.out_height * f.row_taps), take(f.out_height), take(f.out_height), f.row_taps};
  s.blur = take(kMaxRadius + 1);
  s.planes = bytes + rounded(size_t(reinterpret_cast<unsigned char*>(words) - bytes));
  s.narrow = s.planes + rounded(size_t(f.channels) * size_t(f.out_pixels()));
  s.smooth = reinterpret_cast<uint16_t*>(s.narrow);
  return s;
}

// All threads of the block call every function below, under uniform conditions.

__device__ void prepare(const Axis& a, const ScaledAxis& scaled) {
  for (int i = int(threadIdx.x); i < scaled.to; i += kThreads) {
    const Taps t = taps_of(scaled, i);
    a.first[i] = int32_t(t.first);
    a.count[i] = int32_t(t.end - t.first);
    for (int64_t x = t.first; x < t.end; ++x) a.weights[i * a.stride + int(x - t.first)] = weight(t, scaled, i, x);
  }
}

// Crops the image and resizes the crop to the view.
__device__ void crop(const Shared& s, const uint8_t* image, const Frame& f, const RandomView& v) {
  const int plane = int(v.height) * f.out_width;
  for (int i = int(threadIdx.x); i < f.channels * plane; i += kThreads) {
    const int c = i / plane, row = i % plane / f.out_width, column = i % f.out_width;
    const uint8_t* from = image + ((v.top + row) * f.width + v.left + s.columns.first[column]) * f.channels + c;
    int32_t sum = 0;
    for (int k = 0; k < s.columns.count[column]; ++k)
      sum += s.columns.weights[column * s.columns.stride + k] * from[k * f.channels];
    s.narrow[i] = resampled(sum);
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < f.channels * f.out_pixels(); i += kThreads) {
    const int c = i / f.out_pixels(), row = i % f.out_pixels() / f.out_width, column = i % f.out_width;
    const uint8_t* from = s.narrow + c * plane + s.rows.first[row] * f.out_width + column;
    int32_t sum = 0;
    for (int k = 0; k < s.rows.count[row]; ++k) sum += s.rows.weights[row * s.rows.stride + k] * from[k * f.out_width];
    s.planes[i] = resampled(sum);
  }
  __syncthreads();
}

__device__ Rgb pixel(const uint8_t* x, int i, int n) { return {x[i], x[n + i], x[2 * n + i]}; }

// Each thread has its own pixels, the same ones in every step.
template <class F> __device__ void for_each_pixel(uint8_t* x, int n, F&& f) {
  for (int i = int(threadIdx.x); i < n; i += kThreads) {
    const Rgb y = f(pixel(x, i, n));
    x[i] = uint8_t(y.r), x[n + i] = uint8_t(y.g), x[2 * n + i] = uint8_t(y.b);
  }
}

__device__ void jitter(uint8_t* x, int n, const RandomView& v) {
  for (Jitter step : v.order) {
    if (step == Jitter::hue) {
      if (v.turn >= 0) for_each_pixel(x, n, [&](Rgb p) { return turned_hue(p, v.turn); });
      continue;
    }
    int32_t mean = 0;
    if (step == Jitter::contrast) {
      int64_t sum = 0;
      for (int i = int(threadIdx.x); i < n; i += kThreads) {
        const Rgb p = pixel(x, i, n);
        sum += luma(p.r, p.g, p.b);
      }
      mean = mean_luma(block_reduce<Sum>(sum), n);
    }
    const int32_t factor = v.factor[int(step)];
    for_each_pixel(x, n, [&](Rgb p) {
      const int32_t from = step == Jitter::saturation ? luma(p.r, p.g, p.b) : mean;
      return Rgb{blended(from, p.r, factor), blended(from, p.g, factor), blended(from, p.b, factor)};
    });
  }
}

// All planes, rows first.
__device__ void blur(const Shared& s, const Frame& f, int64_t sigma) {
  const int radius = int(blur_radius(sigma, f.out_height, f.out_width)), elements = f.channels * f.out_pixels();
  if (threadIdx.x == 0) blur_weights(s.blur, sigma, radius);
  __syncthreads();  // earlier steps are done, too
  for (int i = int(threadIdx.x); i < elements; i += kThreads) {
    const int column = i % f.out_width;
    const uint8_t* const row = s.planes + (i - column);
    uint32_t sum = uint32_t(s.blur[0]) * row[column];
    for (int k = 1; k <= radius; ++k)
      sum += uint32_t(s.blur[k]) *
             (uint32_t(row[reflected(column - k, f.out_width)]) + row[reflected(column + k, f.out_width)]);
    s.smooth[i] = blurred_once(sum);
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < elements; i += kThreads) {
    const int row = i % f.out_pixels() / f.out_width;
    const uint16_t* const column = s.smooth + (i - row * f.out_width);
    const auto at = [&](int r) { return uint32_t(column[reflected(r, f.out_height) * f.out_width]); };
    uint32_t sum = uint32_t(s.blur[0]) * at(row);
    for (int k = 1; k <= radius; ++k) sum += uint32_t(s.blur[k]) * (at(row - k) + at(row + k));
    s.planes[i] = blurred_twice(sum);
  }
}

// Element i of the view. The flip comes last, since no earlier step depends on left and right.
template <class T>
__device__ T looked_up(const uint8_t* planes, const Frame& f, const RandomView& v, const T* table, int i) {
  const int c = i % f.channels, row = i / f.channels / f.out_width, column = i / f.channels % f.out_width;
  const uint8_t byte = planes[(c * f.out_height + row) * f.out_width + (v.flip ? f.out_width - 1 - column : column)];
  return table[c * 256 + (v.solarize ? solarized(byte) : byte)];
}

// A block makes one image at a time; finally each thread stores `wide` neighbouring elements at a time. Without
// `in_shared` a block has shared_bytes(f) of `scratch`.
template <class T, int wide, bool in_shared>
__global__ void __launch_bounds__(kThreads)
    random_view_kernel(T* y, const uint8_t* images, const int64_t* index, const T* table, unsigned char* scratch,
                       int64_t batch, Frame f, RandomViewParams p) {
  SHARED_DYN(unsigned char, bytes);
  SHARED_ARRAY(RandomView, drawn, [1]);
  const Shared s = divided(in_shared ? bytes : scratch + blockIdx.x * shared_bytes(f), f);
  const int elements = f.channels * f.out_pixels();
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const int64_t sample = index[b];
    __syncthreads();  // the previous image is done
    if (threadIdx.x == 0) drawn[0] = draw_view(p, sample, f.height, f.width);
    __syncthreads();
    const RandomView& v = drawn[0];
    prepare(s.columns, f.axis(v.width, f.out_width));
    prepare(s.rows, f.axis(v.height, f.out_height));
    __syncthreads();
    crop(s, images + (p.gathered ? b : sample) * f.height * f.width * f.channels, f, v);
    if (v.jitter) jitter(s.planes, f.out_pixels(), v);
    if (v.gray)
      for_each_pixel(s.planes, f.out_pixels(), [](Rgb x) {
        const int32_t gray = luma(x.r, x.g, x.b);
        return Rgb{gray, gray, gray};
      });
    if (v.sigma > 0) blur(s, f, v.sigma);
    __syncthreads();
    for (int i = int(threadIdx.x) * wide; i < elements; i += kThreads * wide) {
      Vec<T, wide> out;
      for (int k = 0; k < wide; ++k) out.x[k] = looked_up(s.planes, f, v, table, i + k);
      store(y + b * elements + i, out);
    }
  }
}

template <class T>
void random_view_as(const View& y, const View& images, const View& index, const View& table,
                    const RandomViewParams& p) {
  constexpr int kWide = 16 / sizeof(T);
  const auto side = [](int64_t n) { return int(n); };
  Frame f{
      side(images.dims[1]), side(images.dims[2]), side(images.dims[3]), side(y.dims[1]), side(y.dims[2]), p.how, 0, 0};
  f.column_taps = int(most_taps(f.axis(f.width, f.out_width)));
  f.row_taps = int(most_taps(f.axis(f.height, f.out_height)));
  const int64_t batch = y.dims[0];
  const size_t bytes = shared_bytes(f), most = size_t(properties(y.device.index).shared_bytes_per_block) - kStaticBytes;
  const bool in_shared = bytes <= most;
  Grid grid =
      in_shared ? covering(y.device, batch * kThreads, kThreads) : covering_with_scratch(y.device, batch, kThreads);
  if (in_shared) grid.shared_bytes = bytes;
  const Tensor scratch({in_shared ? 0 : int64_t(grid.blocks.x * bytes)}, DType::u8, y.device);
  T* const to = static_cast<T*>(y.data);
  const auto start = [&]<int wide, bool shared>() {
    launch<random_view_kernel<T, wide, shared>>(y.device, grid, to, images.as<uint8_t>(), index.as<int64_t>(),
                                                static_cast<const T*>(table.data), View(scratch).as<uint8_t>(), batch,
                                                f, p);
  };
  if (!in_shared) start.template operator()<1, false>();
  else if (f.channels * f.out_pixels() % kWide == 0 && aligned_width(kWide, to) == kWide)
    start.template operator()<kWide, true>();
  else start.template operator()<1, true>();
}

}  // namespace

void random_view(View y, View images, View index, View table, RandomViewParams params) {
  if (y.size() == 0) return;
  dispatch_image(y.dtype, [&]<class T>() { random_view_as<T>(y, images, index, table, params); });
}

}  // namespace ringtape::cuda
