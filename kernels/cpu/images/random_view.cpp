#include "kernels/random_view.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/images/resample.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/look_up.h"
#include "kernels/random_view_pixels.h"

RT_ISA_BEGIN
namespace {

constexpr int64_t kViewElementsAThread = 8 * 1024;

struct ViewFrame {
  int64_t height, width, channels, out_height, out_width;
  Interpolation how;
  int64_t image() const { return height * width * channels; }
  int64_t out_pixels() const { return out_height * out_width; }
};

// The buffers of a thread.
struct Workspace {
  Resampler resampler;
  std::vector<uint8_t> line;     // a row of the view, (OW, C)
  std::vector<uint8_t> planes;   // the view, (C, OH, OW)
  std::vector<uint8_t> padded;   // for the blur: a row with its reflected borders,
  std::vector<uint32_t> sums;    // a row of weighted sums,
  std::vector<uint16_t> smooth;  // a plane after the first pass
};

// Crops the image, resizes the crop to the view and calls use(row, bytes) for each row of it, (OW, C).
template <class F> void crop(Workspace& w, const uint8_t* image, const ViewFrame& f, const RandomView& v, F&& use) {
  const auto axis = [&f](int64_t from, int64_t to) { return ScaledAxis{.from = from, .to = to, .how = f.how}; };
  w.resampler.begin(image + (v.top * f.width + v.left) * f.channels, f.width * f.channels, f.channels,
                    {axis(v.height, f.out_height), 0, f.out_height}, {axis(v.width, f.out_width), 0, f.out_width});
  for (int64_t row = 0; row < f.out_height; ++row) {
    w.resampler.row(row, w.line.data());
    use(row, w.line.data());
  }
}

// Moves a row between (OW, C) and the planes.
template <bool to_planes, int64_t known_channels>
void move_row(uint8_t* __restrict line, uint8_t* __restrict planes, const ViewFrame& f) {
  const int64_t channels = known_channels > 0 ? known_channels : f.channels, n = f.out_pixels();
  for (int64_t i = 0; i < f.out_width; ++i)
    for (int64_t c = 0; c < channels; ++c)
      if constexpr (to_planes) planes[c * n + i] = line[i * channels + c];
      else line[i * channels + c] = planes[c * n + i];
}
template <bool to_planes> void move_row(uint8_t* line, uint8_t* planes, const ViewFrame& f) {
  if (f.channels == 3) move_row<to_planes, 3>(line, planes, f);
  else move_row<to_planes, 0>(line, planes, f);
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
template <class T> void add_weighted(uint32_t* __restrict sums, const T* a, const T* b, uint32_t weight, int64_t n) {
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

// The steps that need the whole view, on its planes.
void change_planes(uint8_t* x, const ViewFrame& f, const RandomView& v, Workspace& w) {
  const int64_t n = f.out_pixels();
  if (v.jitter) jitter(x, n, v);
  if (v.gray) turn_gray(x, x + n, x + 2 * n, n);
  if (v.sigma > 0) {
    int32_t weights[kMaxRadius + 1];
    const int64_t radius = blur_radius(v.sigma, f.out_height, f.out_width);
    blur_weights(weights, v.sigma, radius);
    for (int64_t c = 0; c < f.channels; ++c) blur(x + c * n, w, f, weights, radius);
  }
}

// The flip comes last, since no earlier step depends on left and right.
template <class T>
void make_view(T* y, const uint8_t* image, const ViewFrame& f, const RandomView& v, const T* table, Workspace& w) {
  const int64_t bytes = f.out_width * f.channels;
  w.line.resize(size_t(bytes));
  const auto finish = [&](int64_t row, uint8_t* line) {
    if (v.solarize)
      for (int64_t i = 0; i < bytes; ++i) line[i] = solarized(line[i]);
    T* const to = y + row * bytes;
    v.flip ? look_up<true>(to, line, f.out_width, table, f.channels)
           : look_up<false>(to, line, f.out_width, table, f.channels);
  };
  if (!v.jitter && !v.gray && v.sigma == 0) return crop(w, image, f, v, finish);
  w.planes.resize(size_t(f.channels * f.out_pixels()));
  const auto planes = [&](int64_t row) { return w.planes.data() + row * f.out_width; };
  crop(w, image, f, v, [&](int64_t row, uint8_t* line) { move_row<true>(line, planes(row), f); });
  change_planes(w.planes.data(), f, v, w);
  for (int64_t row = 0; row < f.out_height; ++row) {
    move_row<false>(w.line.data(), planes(row), f);
    finish(row, w.line.data());
  }
}

template <class T>
void random_view_as(const View& y, const View& images, const View& index, const T* table, const RandomViewParams& p) {
  const ViewFrame f{images.dims[1], images.dims[2], images.dims[3], y.dims[1], y.dims[2], p.how};
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
