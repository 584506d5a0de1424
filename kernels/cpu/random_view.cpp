#include "kernels/random_view.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/isa.h"
#include "kernels/random_view_pixels.h"

RT_ISA_BEGIN
namespace {

constexpr int64_t kViewElementsAThread = 8 * 1024;

struct ViewFrame {
  int64_t height, width, channels, out_height, out_width;
  int64_t image() const { return height * width * channels; }
  int64_t out_pixels() const { return out_height * out_width; }
};

// The weights of an axis: output pixel i has weights[i * count ..], for input pixels from first[i] on.
struct ResampledAxis {
  int64_t count = 0;
  std::vector<int32_t> first, weights;
  void prepare(int64_t from, int64_t to) {
    count = std::min(most_taps(from, to), from);
    first.resize(size_t(to));
    weights.assign(size_t(to * count), 0);
    for (int64_t i = 0; i < to; ++i) {
      const Taps t = taps_of(from, to, i);
      const int64_t begin = std::min(t.first, from - count);
      first[size_t(i)] = int32_t(begin);
      for (int64_t x = t.first; x < t.end; ++x) weights[size_t(i * count + x - begin)] = weight(t, from, to, i, x);
    }
  }
};

// The buffers of a thread, channels first: (C, height, OW) and (C, OH, OW).
struct Workspace {
  ResampledAxis columns, rows;
  std::vector<uint8_t> narrow, planes;
  std::vector<uint8_t> padded;    // for the blur: a row with its reflected borders,
  std::vector<uint32_t> sums;     // a row of weighted sums,
  std::vector<uint16_t> smooth;   // a plane after the first pass
};

// Resamples a row of the image, C interleaved channels, to rows of y that are `plane` apart.
template <int64_t known_channels, int64_t known_count>
void resample_row(uint8_t* y, int64_t plane, const uint8_t* x, const ResampledAxis& axis, int64_t width,
                  int64_t channels) {
  if constexpr (known_channels > 0) channels = known_channels;
  const int64_t count = known_count > 0 ? known_count : axis.count;
  const int32_t* w = axis.weights.data();
  for (int64_t i = 0; i < width; ++i, w += count) {
    const uint8_t* from = x + axis.first[size_t(i)] * channels;
    for (int64_t c = 0; c < channels; ++c) {
      int32_t sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += w[k] * from[k * channels + c];
      y[c * plane + i] = resampled(sum);
    }
  }
}

template <int64_t known_count>
void resample_column(uint8_t* __restrict y, const uint8_t* __restrict x, const int32_t* w, int64_t count,
                     int64_t width) {
  if constexpr (known_count > 0) count = known_count;
  for (int64_t i = 0; i < width; ++i) {
    int32_t sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += w[k] * x[k * width + i];
    y[i] = resampled(sum);
  }
}

// Crops the image and resizes the crop to the view.
void crop(Workspace& w, const uint8_t* image, const ViewFrame& f, const RandomView& v) {
  w.columns.prepare(v.width, f.out_width);
  w.rows.prepare(v.height, f.out_height);
  const int64_t plane = v.height * f.out_width, columns = w.columns.count, rows = w.rows.count;
  w.narrow.resize(size_t(f.channels * plane));
  for (int64_t row = 0; row < v.height; ++row) {
    const uint8_t* const from = image + ((v.top + row) * f.width + v.left) * f.channels;
    uint8_t* const to = w.narrow.data() + row * f.out_width;
    if (f.channels == 3 && columns == 2) resample_row<3, 2>(to, plane, from, w.columns, f.out_width, 3);
    else if (f.channels == 3) resample_row<3, 0>(to, plane, from, w.columns, f.out_width, 3);
    else resample_row<0, 0>(to, plane, from, w.columns, f.out_width, f.channels);
  }
  for (int64_t c = 0; c < f.channels; ++c)
    for (int64_t row = 0; row < f.out_height; ++row) {
      const uint8_t* const from = w.narrow.data() + c * plane + w.rows.first[size_t(row)] * f.out_width;
      uint8_t* const to = w.planes.data() + c * f.out_pixels() + row * f.out_width;
      const int32_t* const weights = w.rows.weights.data() + row * rows;
      if (rows == 2) resample_column<2>(to, from, weights, rows, f.out_width);
      else resample_column<0>(to, from, weights, rows, f.out_width);
    }
}

// All n bytes of x.
void blend_with(uint8_t* x, int64_t n, int32_t from, int32_t factor) {
  for (int64_t i = 0; i < n; ++i) x[i] = uint8_t(blended(from, x[i], factor));
}

// The next four functions work on three planes of n bytes.
int64_t sum_of_lumas(const uint8_t* x, int64_t n) {
  int64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += 4096) {
    int32_t sum = 0;
    for (int64_t i = begin; i < std::min(begin + 4096, n); ++i) sum += luma(x[i], x[n + i], x[2 * n + i]);
    total += sum;
  }
  return total;
}

void saturate(uint8_t* __restrict r, uint8_t* __restrict g, uint8_t* __restrict b, int64_t n, int32_t factor) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t gray = luma(r[i], g[i], b[i]);
    r[i] = uint8_t(blended(gray, r[i], factor));
    g[i] = uint8_t(blended(gray, g[i], factor));
    b[i] = uint8_t(blended(gray, b[i], factor));
  }
}

// Pixels are converted to 32-bit integers: a loop with bytes and f64 would not vectorise.
void turn_hue(uint8_t* x, int64_t n, int32_t turn) {
  constexpr int64_t kBlock = 256;
  int32_t r[kBlock], g[kBlock], b[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    uint8_t* const at = x + begin;
    for (int64_t i = 0; i < count; ++i) r[i] = at[i], g[i] = at[n + i], b[i] = at[2 * n + i];
    for (int64_t i = 0; i < count; ++i) {
      const Rgb y = turned_hue({r[i], g[i], b[i]}, turn);
      r[i] = y.r, g[i] = y.g, b[i] = y.b;
    }
    for (int64_t i = 0; i < count; ++i) at[i] = uint8_t(r[i]), at[n + i] = uint8_t(g[i]), at[2 * n + i] = uint8_t(b[i]);
  }
}

void turn_gray(uint8_t* __restrict r, uint8_t* __restrict g, uint8_t* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) r[i] = g[i] = b[i] = uint8_t(luma(r[i], g[i], b[i]));
}

void jitter(uint8_t* x, int64_t n, const RandomView& v) {
  for (Jitter step : v.order) {
    const int32_t factor = step == Jitter::hue ? 0 : v.factor[int(step)];
    if (factor == 1 << kFactorBits) continue;
    if (step == Jitter::brightness) blend_with(x, 3 * n, 0, factor);
    else if (step == Jitter::contrast) blend_with(x, 3 * n, mean_luma(sum_of_lumas(x, n), n), factor);
    else if (step == Jitter::saturation) saturate(x, x + n, x + 2 * n, n, factor);
    else if (v.turn >= 0) turn_hue(x, n, v.turn);
  }
}

// sums[i] += weight (a[i] + b[i]).
template <class T>
void add_weighted(uint32_t* __restrict sums, const T* a, const T* b, uint32_t weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += weight * (uint32_t(a[i]) + uint32_t(b[i]));
}

// One plane of the view, rows first.
void blur(uint8_t* x, Workspace& w, const ViewFrame& f, const int32_t* weights, int64_t radius) {
  const int64_t height = f.out_height, width = f.out_width;
  w.padded.resize(size_t(width + 2 * radius));
  w.smooth.resize(size_t(f.out_pixels()));
  w.sums.resize(size_t(width));
  uint32_t* const sums = w.sums.data();
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t i = 0; i < width + 2 * radius; ++i)
      w.padded[size_t(i)] = x[row * width + reflected(i - radius, width)];
    const uint8_t* const from = w.padded.data() + radius;
    for (int64_t i = 0; i < width; ++i) sums[i] = uint32_t(weights[0]) * from[i];
    for (int64_t k = 1; k <= radius; ++k) add_weighted(sums, from - k, from + k, uint32_t(weights[k]), width);
    for (int64_t i = 0; i < width; ++i) w.smooth[size_t(row * width + i)] = blurred_once(sums[i]);
  }
  for (int64_t row = 0; row < height; ++row) {
    const auto at = [&](int64_t r) { return w.smooth.data() + reflected(r, height) * width; };
    for (int64_t i = 0; i < width; ++i) sums[i] = uint32_t(weights[0]) * at(row)[i];
    for (int64_t k = 1; k <= radius; ++k) add_weighted(sums, at(row - k), at(row + k), uint32_t(weights[k]), width);
    for (int64_t i = 0; i < width; ++i) x[row * width + i] = blurred_twice(sums[i]);
  }
}

// Interleaves the planes, mirrors and looks up in the table. Not vectorised, as in augment.
template <bool mirrored, int64_t known_channels, class T>
RT_NO_VECTORIZE void look_up(T* __restrict y, const uint8_t* __restrict x, const ViewFrame& f,
                             const T* __restrict table) {
  const int64_t channels = known_channels > 0 ? known_channels : f.channels, n = f.out_pixels();
  for (int64_t row = 0; row < n; row += f.out_width)
    for (int64_t i = 0; i < f.out_width; ++i)
      for (int64_t c = 0; c < channels; ++c)
        *y++ = table[c * 256 + x[c * n + row + (mirrored ? f.out_width - 1 - i : i)]];
}

// The flip comes last, since no earlier step depends on left and right.
template <class T>
void make_view(T* y, const uint8_t* image, const ViewFrame& f, const RandomView& v, const T* table, Workspace& w) {
  const int64_t n = f.out_pixels();
  w.planes.resize(size_t(f.channels * n));
  uint8_t* const x = w.planes.data();
  crop(w, image, f, v);
  if (v.jitter) jitter(x, n, v);
  if (v.gray) turn_gray(x, x + n, x + 2 * n, n);
  if (v.sigma > 0) {
    int32_t weights[kMostRadius + 1];
    const int64_t radius = blur_radius(v.sigma, f.out_height, f.out_width);
    blur_weights(weights, v.sigma, radius);
    for (int64_t c = 0; c < f.channels; ++c) blur(x + c * n, w, f, weights, radius);
  }
  if (v.solarize)
    for (int64_t i = 0; i < f.channels * n; ++i) x[i] = solarized(x[i]);
  if (f.channels == 3) v.flip ? look_up<true, 3>(y, x, f, table) : look_up<false, 3>(y, x, f, table);
  else v.flip ? look_up<true, 0>(y, x, f, table) : look_up<false, 0>(y, x, f, table);
}

template <class T>
void random_view_as(const View& y, const View& images, const View& index, const T* table, const RandomViewParams& p) {
  const ViewFrame f{images.dims[1], images.dims[2], images.dims[3], y.dims[1], y.dims[2]};
  const int64_t elements = f.channels * f.out_pixels();
  parallel_for(y.dims[0], kViewElementsAThread / std::max<int64_t>(elements, 1), [&](int64_t begin, int64_t end) {
    Workspace w;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t sample = index.as<int64_t>()[b];
      const uint8_t* const image = images.as<uint8_t>() + (p.gathered ? b : sample) * f.image();
      make_view(static_cast<T*>(y.data) + b * elements, image, f, draw_view(p, sample, f.height, f.width), table, w);
    }
  });
}

}  // namespace

void random_view(View y, View images, View index, View table, RandomViewParams params) {
  dispatch_image(y.dtype,
                 [&]<class T>() { random_view_as(y, images, index, static_cast<const T*>(table.data), params); });
}

RT_ISA_END
