#include "kernels/image_policy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/image_policy_pixels.h"

RT_ISA_BEGIN
namespace {

constexpr int64_t kPolicyElementsAThread = 16 * 1024;

struct PolicyFrame {
  int64_t height, width, channels;
  int64_t pixels() const { return height * width; }
  int64_t bytes() const { return pixels() * channels; }
};

// Each operation reads `from` and writes another image.

template <int channels> void move_pixels(uint8_t* to, const uint8_t* from, const PolicyFrame& f, const Affine& a) {
  const auto height = int32_t(f.height), width = int32_t(f.width);
  for (int32_t row = 0; row < height; ++row) {
    int32_t y = a.y + row * a.y_row, x = a.x + row * a.x_row;
    for (int32_t column = 0; column < width; ++column, to += channels, y += a.y_column, x += a.x_column) {
      const int32_t pixel = pixel_at(y, x, height, width);
      if (pixel < 0)
        for (int c = 0; c < channels; ++c) to[c] = 0;
      else
        for (int c = 0; c < channels; ++c) to[c] = from[pixel * channels + c];
    }
  }
}

template <int channels> int32_t policy_luma(const uint8_t* x) {
  if constexpr (channels == 1) return x[0];
  else return luma(x[0], x[1], x[2]);
}

template <int channels> int32_t mean_of(const uint8_t* x, int64_t pixels) {
  int64_t sum = 0;
  for (int64_t begin = 0; begin < pixels; begin += 4096) {
    int32_t part = 0;
    for (int64_t i = begin; i < std::min(begin + 4096, pixels); ++i) part += policy_luma<channels>(x + i * channels);
    sum += part;
  }
  return mean_luma(sum, pixels);
}

template <int channels>
void change_levels(uint8_t* to, const uint8_t* from, const PolicyFrame& f, const PolicyParams& p,
                   const PolicyStep& step, const float* product) {
  uint8_t levels[channels][256];
  if (by_histogram(step.op)) {
    int32_t histogram[channels][256] = {};
    for (int64_t i = 0; i < f.bytes(); i += channels)
      for (int c = 0; c < channels; ++c) ++histogram[c][from[i + c]];
    for (int c = 0; c < channels; ++c)
      step.op == PolicyOp::equalize ? equalized_levels(levels[c], histogram[c])
                                    : auto_contrast_levels(levels[c], histogram[c]);
  } else {
    const int32_t mean = step.op == PolicyOp::contrast ? mean_of<channels>(from, f.pixels()) : 0;
    for (int level = 0; level < 256; ++level)
      for (int c = 0; c < channels; ++c) levels[c][level] = changed_level(p, step, level, mean, product);
  }
  for (int64_t i = 0; i < f.bytes(); i += channels)
    for (int c = 0; c < channels; ++c) to[i + c] = levels[c][from[i + c]];
}

void change_color(uint8_t* __restrict to, const uint8_t* __restrict from, int64_t pixels, const float* product) {
  for (int64_t i = 0; i < 3 * pixels; i += 3) {
    const int32_t gray = luma(from[i], from[i + 1], from[i + 2]);
    for (int c = 0; c < 3; ++c) to[i + c] = blended_by(gray, from[i + c], product);
  }
}

// The inner pixels; those of the border are there.
void sharpen(uint8_t* __restrict to, const uint8_t* __restrict from, const PolicyFrame& f, const float* product) {
  const int64_t row_bytes = f.width * f.channels, step = f.channels;
  for (int64_t row = 1; row + 1 < f.height; ++row) {
    const uint8_t* const x = from + row * row_bytes;
    uint8_t* const y = to + row * row_bytes;
    for (int64_t i = step; i < row_bytes - step; ++i) {
      const uint8_t *above = x - row_bytes, *below = x + row_bytes;
      const int32_t sum = above[i - step] + above[i] + above[i + step] + x[i - step] + x[i] + x[i + step] +
                          below[i - step] + below[i] + below[i + step];
      y[i] = blended_by(smoothed(sum, x[i]), x[i], product);
    }
  }
}

// Whether it has written `to`; otherwise the image stays.
template <int channels>
bool policy_step(uint8_t* to, const uint8_t* from, const PolicyFrame& f, const PolicyParams& p,
                 const PolicyStep& step) {
  if (step.op == PolicyOp::identity || (step.op == PolicyOp::color && channels == 1)) return false;
  float product[kProducts];
  for (int i = 0; i < kProducts; ++i) product[i] = blend_product(p.factor[step.negative][step.bin], i);
  if (is_move(step.op))
    move_pixels<channels>(to, from, f, p.moves[int(step.op) - int(PolicyOp::shear_x)][step.negative][step.bin]);
  else if (by_level(step.op)) change_levels<channels>(to, from, f, p, step, product);
  else if (step.op == PolicyOp::color) change_color(to, from, f.pixels(), product);
  else {
    std::memcpy(to, from, size_t(f.bytes()));
    sharpen(to, from, f, product);
  }
  return true;
}

template <int channels, class T>
RT_NO_VECTORIZE void policy_look_up(T* __restrict y, const uint8_t* __restrict x, int64_t bytes,
                                    const T* __restrict table) {
  for (int64_t i = 0; i < bytes; i += channels)
    for (int c = 0; c < channels; ++c) y[i + c] = table[c * 256 + x[i + c]];
}

template <int channels, class T>
void policy_images(T* y, const View& images, const View& index, const T* table, const PolicyParams& p) {
  const PolicyFrame f{images.dims[1], images.dims[2], channels};
  const int64_t bytes = f.bytes();
  parallel_for(index.dims[0], kPolicyElementsAThread / std::max<int64_t>(bytes, 1), [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> buffer(size_t(2 * bytes));
    for (int64_t b = begin; b < end; ++b) {
      const int64_t sample = index.as<int64_t>()[b];
      const uint8_t* x = images.as<uint8_t>() + (p.gathered ? b : sample) * bytes;
      for (int64_t k = 0; k < p.ops; ++k) {
        uint8_t* const to = buffer.data() + (x == buffer.data() ? bytes : 0);
        if (policy_step<channels>(to, x, f, p, draw_policy_step(p, sample, k))) x = to;
      }
      policy_look_up<channels>(y + b * bytes, x, bytes, table);
    }
  });
}

}  // namespace

void image_policy(View y, View images, View index, View table, PolicyParams params) {
  dispatch_image(y.dtype, [&]<class T>() {
    const auto to = static_cast<T*>(y.data);
    const auto lookup = static_cast<const T*>(table.data);
    if (images.dims[3] == 1) policy_images<1>(to, images, index, lookup, params);
    else policy_images<3>(to, images, index, lookup, params);
  });
}

RT_ISA_END
