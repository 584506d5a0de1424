#include "kernels/augment.h"

#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;

// Sides of images are below 2^31, since the number of pixels is.
struct Frame {
  int64_t height, width, channels, out_height, out_width;
};

// One element of y: row, column and channel.
template <class T>
__device__ T augmented(const uint8_t* image, const Frame& f, const CropPlace& at, const T* table,
                       const AugmentParams& p, int64_t row, int64_t column, int64_t c) {
  const bool cut =
      row >= at.cut_top && row < at.cut_top + p.cutout && column >= at.cut_left && column < at.cut_left + p.cutout;
  if (cut) return T(0);
  int64_t from_row = at.top + row, from_column = at.left + (at.flip ? f.out_width - 1 - column : column);
  if (p.reflect) from_row = reflected(from_row, f.height), from_column = reflected(from_column, f.width);
  uint8_t byte = 0;
  if (p.most_angle > 0)
    byte =
        between_pixels(image, f.height, f.width, f.channels, c, turned(at, from_row, from_column, f.height, f.width));
  else if (from_row >= 0 && from_row < f.height && from_column >= 0 && from_column < f.width)
    byte = image[(from_row * f.width + from_column) * f.channels + c];
  return table[c * 256 + byte];
}

// One block per image; a thread computes `wide` neighbouring elements at a time.
template <class T, int wide>
__global__ void __launch_bounds__(kThreads) augment_kernel(T* y, const uint8_t* images, const int64_t* index,
                                                           const T* table, int64_t batch, Frame f, AugmentParams p) {
  const int64_t row_elements = f.out_width * f.channels, elements = f.out_height * row_elements;
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const int64_t sample = index[b];
    const uint8_t* const image = images + (p.gathered ? b : sample) * f.height * f.width * f.channels;
    const int64_t free_rows = f.height + 2 * p.pad - f.out_height, free_columns = f.width + 2 * p.pad - f.out_width;
    const CropPlace at = place(p, sample, free_rows, free_columns, f.out_height, f.out_width);
    for (int64_t i = int64_t(threadIdx.x) * wide; i < elements; i += int64_t(kThreads) * wide) {
      int64_t row = i / row_elements, column = i % row_elements / f.channels, c = i % f.channels;
      Vec<T, wide> v;
      for (int k = 0; k < wide; ++k) {
        v.x[k] = augmented(image, f, at, table, p, row, column, c);
        if (++c == f.channels) c = 0, ++column;
        if (column == f.out_width) column = 0, ++row;
      }
      store(y + b * elements + i, v);
    }
  }
}

template <class T>
void augment_as(const View& y, const View& images, const View& index, const View& table, const AugmentParams& p) {
  constexpr int kWide = 16 / sizeof(T);
  const Frame f{images.dims[1], images.dims[2], images.dims[3], y.dims[1], y.dims[2]};
  const int64_t elements = f.out_height * f.out_width * f.channels, blocks = y.dims[0];
  const Grid grid{dim3(unsigned(blocks < (1 << 20) ? blocks : 1 << 20)), dim3(kThreads)};
  T* const to = static_cast<T*>(y.data);
  const T* const lookup = static_cast<const T*>(table.data);
  if (elements % kWide == 0 && aligned_width(kWide, to) == kWide)
    launch<augment_kernel<T, kWide>>(y.device, grid, to, images.as<uint8_t>(), index.as<int64_t>(), lookup, blocks, f,
                                     p);
  else
    launch<augment_kernel<T, 1>>(y.device, grid, to, images.as<uint8_t>(), index.as<int64_t>(), lookup, blocks, f, p);
}

}  // namespace

void augment(View y, View images, View index, View table, AugmentParams params) {
  if (y.size() == 0) return;
  dispatch_image(y.dtype, [&]<class T>() { augment_as<T>(y, images, index, table, params); });
}

}  // namespace ringtape::cuda
