// Random views on the CPU: each step compared with PIL and torchvision (tests/fixtures/make_views.py), and the kernel
// with plain loops, for every instruction set.
#include "kernels/random_view.h"

#include <array>
#include <cmath>
#include <functional>

#include "kernels/random_view_pixels.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

using test::with_every_isa;

constexpr ViewAugmentation kNothing{.crop_low = 1, .flip = 0, .jitter = 0, .gray = 0};
constexpr ViewAugmentation kAll{.jitter = 0.7, .gray = 0.3, .blur = 0.4, .solarize = 0.3};

struct Image {
  int64_t height, width, channels;
  std::vector<uint8_t> bytes;
  Image(int64_t h, int64_t w, int64_t c) : height(h), width(w), channels(c), bytes(size_t(h * w * c)) {}
  explicit Image(const Tensor& x) : Image(x.dim(1), x.dim(2), x.dim(3)) {
    std::copy_n(x.data<uint8_t>(), x.size(), bytes.begin());
  }
  uint8_t& at(int64_t row, int64_t column, int64_t c) { return bytes[size_t((row * width + column) * channels + c)]; }
  uint8_t at(int64_t row, int64_t column, int64_t c) const {
    return bytes[size_t((row * width + column) * channels + c)];
  }
};

Image transposed(const Image& x) {
  Image y(x.width, x.height, x.channels);
  for (int64_t r = 0; r < y.height; ++r)
    for (int64_t k = 0; k < y.width; ++k)
      for (int64_t c = 0; c < y.channels; ++c) y.at(r, k, c) = x.at(k, r, c);
  return y;
}

Image resized_rows(const Image& x, int64_t width) {
  Image y(x.height, width, x.channels);
  for (int64_t r = 0; r < y.height; ++r)
    for (int64_t k = 0; k < width; ++k)
      for (int64_t c = 0; c < y.channels; ++c) {
        const Taps t = taps_of({x.width, width}, k);
        int32_t sum = 0;
        for (int64_t i = t.first; i < t.end; ++i) sum += weight(t, {x.width, width}, k, i) * x.at(r, i, c);
        y.at(r, k, c) = resampled(sum);
      }
  return y;
}

Image cropped(const Image& x, const RandomView& v, int64_t height, int64_t width) {
  Image part(v.height, v.width, x.channels);
  for (int64_t r = 0; r < v.height; ++r)
    for (int64_t k = 0; k < v.width; ++k)
      for (int64_t c = 0; c < x.channels; ++c) part.at(r, k, c) = x.at(v.top + r, v.left + k, c);
  return transposed(resized_rows(transposed(resized_rows(part, width)), height));
}

void for_each_pixel(Image& x, const std::function<Rgb(Rgb)>& f) {
  for (size_t i = 0; i < x.bytes.size(); i += 3) {
    const Rgb y = f({x.bytes[i], x.bytes[i + 1], x.bytes[i + 2]});
    x.bytes[i] = uint8_t(y.r), x.bytes[i + 1] = uint8_t(y.g), x.bytes[i + 2] = uint8_t(y.b);
  }
}

void jitter(Image& x, Jitter step, const RandomView& v) {
  int64_t lumas = 0;
  for_each_pixel(x, [&](Rgb p) { return lumas += luma(p.r, p.g, p.b), p; });
  const int32_t mean = mean_luma(lumas, x.height * x.width);
  for_each_pixel(x, [&](Rgb p) {
    if (step == Jitter::hue) return v.turn < 0 ? p : turned_hue(p, v.turn);
    const int32_t from = step == Jitter::brightness ? 0 : step == Jitter::contrast ? mean : luma(p.r, p.g, p.b);
    const int32_t factor = v.factor[int(step)];
    return Rgb{blended(from, p.r, factor), blended(from, p.g, factor), blended(from, p.b, factor)};
  });
}

void turn_gray(Image& x) {
  for_each_pixel(x, [](Rgb p) { return Rgb{luma(p.r, p.g, p.b), luma(p.r, p.g, p.b), luma(p.r, p.g, p.b)}; });
}

void blur(Image& x, int64_t sigma) {
  const int64_t radius = blur_radius(sigma, x.height, x.width);
  int32_t w[kMaxRadius + 1];
  blur_weights(w, sigma, radius);
  std::vector<uint16_t> once(x.bytes.size());
  const auto place = [&](int64_t r, int64_t k, int64_t c) { return size_t((r * x.width + k) * x.channels + c); };
  const auto each = [&](const std::function<void(int64_t, int64_t, int64_t)>& f) {
    for (int64_t r = 0; r < x.height; ++r)
      for (int64_t k = 0; k < x.width; ++k)
        for (int64_t c = 0; c < x.channels; ++c) f(r, k, c);
  };
  each([&](int64_t r, int64_t k, int64_t c) {
    uint32_t sum = 0;
    for (int64_t d = -radius; d <= radius; ++d) sum += uint32_t(w[std::abs(d)]) * x.at(r, reflected(k + d, x.width), c);
    once[place(r, k, c)] = blurred_once(sum);
  });
  each([&](int64_t r, int64_t k, int64_t c) {
    uint32_t sum = 0;
    for (int64_t d = -radius; d <= radius; ++d)
      sum += uint32_t(w[std::abs(d)]) * once[place(reflected(r + d, x.height), k, c)];
    x.at(r, k, c) = blurred_twice(sum);
  });
}

// The steps in the order of their description, one after the other.
Image plain_view(const Image& image, const RandomView& v, int64_t height, int64_t width) {
  Image x = cropped(image, v, height, width);
  if (v.flip)
    for (int64_t r = 0; r < height; ++r)
      for (int64_t k = 0; k < width / 2; ++k)
        for (int64_t c = 0; c < x.channels; ++c) std::swap(x.at(r, k, c), x.at(r, width - 1 - k, c));
  for (Jitter step : v.order)
    if (v.jitter) jitter(x, step, v);
  if (v.gray) turn_gray(x);
  if (v.sigma > 0) blur(x, v.sigma);
  for (uint8_t& byte : x.bytes)
    if (v.solarize) byte = solarized(byte);
  return x;
}

// How many bytes differ, and by how much at most.
void expect_levels(const Image& y, const Tensor& want, int most, const std::string& what) {
  const Image w(want);
  ASSERT_EQ(y.bytes.size(), w.bytes.size()) << what;
  int worst = 0;
  for (size_t i = 0; i < y.bytes.size(); ++i) worst = std::max(worst, std::abs(y.bytes[i] - w.bytes[i]));
  EXPECT_LE(worst, most) << what;
}

// The names PREFIX/K/y of the fixture, with K.
template <class F> void for_each_case(const Safetensors& file, const std::string& prefix, F&& f) {
  int found = 0;
  for (const NamedTensor& t : file.tensors)
    if (t.name.starts_with(prefix + "/") && t.name.ends_with("/y"))
      ++found, f(std::stoll(t.name.substr(prefix.size() + 1)), t.tensor);
  EXPECT_GE(found, 4) << prefix;
}

TEST(RandomView, StepsArePilsLevelForLevel) {
  const Safetensors file = read_safetensors(std::string(RINGTAPE_SOURCE_DIR) + "/tests/fixtures/views.safetensors");
  for_each_case(file, "crop", [&](int64_t k, const Tensor& y) {
    const std::string name = concat("crop/", k);
    const int64_t* box = file[name + "/box"].data<int64_t>();
    RandomView v{};
    v.left = box[0], v.top = box[1], v.width = box[2], v.height = box[3];
    expect_levels(cropped(Image(file[name + "/x"]), v, y.dim(1), y.dim(2)), y, 0, name);
  });
  const Image colours(file["colours/x"]);
  constexpr const char* kSteps[] = {"brightness", "contrast", "saturation"};
  for (int step = 0; step < 3; ++step)
    for_each_case(file, kSteps[step], [&](int64_t k, const Tensor& y) {
      RandomView v{};
      v.factor[step] = int32_t(k);
      Image x = colours;
      jitter(x, Jitter(step), v);
      expect_levels(x, y, 0, concat(kSteps[step], " by ", k, " / 2^14"));
    });
  for_each_case(file, "hue", [&](int64_t k, const Tensor& y) {
    RandomView v{};
    v.turn = int32_t(k * 255 / (1 << kFactorBits)) & 255;
    Image x = colours;
    jitter(x, Jitter::hue, v);
    expect_levels(x, y, 0, concat("hue by ", k, " / 2^14"));
  });
  for_each_case(file, "blur", [&](int64_t k, const Tensor& y) {
    Image x = colours;
    blur(x, k);
    expect_levels(x, y, 1, concat("blur by ", k, " / 2^16"));
  });
  Image gray = colours, inverted = colours;
  turn_gray(gray);
  expect_levels(gray, file["gray/y"], 0, "gray");
  for (uint8_t& byte : inverted.bytes) byte = solarized(byte);
  expect_levels(inverted, file["solarize/y"], 0, "solarize");
}

// PIL's formulas in its own types, on a grid of colours.
TEST(RandomView, HueIsPilsOnAllSides) {
  const auto pil = [](Rgb x, int32_t turn) -> Rgb {
    const int32_t most = std::max({x.r, x.g, x.b}), least = std::min({x.r, x.g, x.b});
    uint8_t hue = 0, s = 0;
    if (most != least) {
      const float range = float(most - least);
      const float rc = float(most - x.r) / range, gc = float(most - x.g) / range, bc = float(most - x.b) / range;
      float h =
          x.r == most ? bc - gc : float(x.g == most ? 2.0 + double(rc) - double(bc) : 4.0 + double(gc) - double(rc));
      h = float(std::fmod(double(h) / 6.0 + 1.0, 1.0));
      hue = uint8_t(int(double(h) * 255.0)), s = uint8_t(int(double(range / float(most)) * 255.0));
    }
    hue = uint8_t(hue + turn);
    if (s == 0) return {most, most, most};
    const int sector = int(std::floor(double(hue) * 6.0 / 255.0));
    const float f = float(double(hue) * 6.0 / 255.0 - double(sector)), fs = float(double(s) / 255.0);
    const double v = double(most);
    const auto level = [](double level) { return int32_t(std::round(level)); };
    const float product = fs * f;
    const int32_t p = level(v * (1.0 - double(fs))), q = level(v * (1.0 - double(product)));
    const int32_t t = level(v * (1.0 - double(fs) * (1.0 - double(f))));
    const Rgb sectors[] = {{most, t, p}, {q, most, p}, {p, most, t}, {p, q, most}, {t, p, most}, {most, p, q}};
    return sectors[sector % 6];
  };
  int64_t different = 0;
  for (int32_t r = 0; r < 256; r += 5)
    for (int32_t g = 0; g < 256; g += 3)
      for (int32_t b = 0; b < 256; b += 5)
        for (int32_t turn : {0, (r + g + b) & 255}) {
          const Rgb y = turned_hue({r, g, b}, turn), want = pil({r, g, b}, turn);
          different += y.r != want.r || y.g != want.g || y.b != want.b;
        }
  EXPECT_EQ(different, 0);
}

// PIL's filters.
double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// PIL's weights: f64, then rounded.
TEST(RandomView, WeightsArePils) {
  for (const Interpolation how : {Interpolation::bilinear, Interpolation::bicubic})
    for (int64_t to : {1, 5, 32, 33})
      for (int64_t from = 1; from <= 80; ++from) {
        const ScaledAxis axis{.from = from, .to = to, .how = how};
        const double scale = double(from) / double(to), reach = std::max(scale, 1.0);
        for (int64_t i = 0; i < to; ++i) {
          const double centre = (double(i) + 0.5) * scale;
          const auto filter = [&](int64_t x) {
            const double away = (double(x) + 0.5 - centre) / reach;
            return how == Interpolation::bicubic ? cubic(away) : triangle(away);
          };
          double sum = 0;
          for (int64_t x = 0; x < from; ++x) sum += filter(x);
          const Taps t = taps_of(axis, i);
          ASSERT_LE(t.end - t.first, most_taps(axis));
          for (int64_t x = 0; x < from; ++x) {
            const int32_t got = x >= t.first && x < t.end ? weight(t, axis, i, x) : 0;
            const double want = filter(x) / sum * (1 << kTapBits);
            ASSERT_EQ(got, int32_t(want + (want < 0 ? -0.5 : 0.5)))
                << from << " to " << to << ", pixel " << i << " from " << x << ", filter " << int(how);
          }
        }
      }
}

TEST(RandomView, AGaussianIsOne) {
  for (double sigma : {0.05, 0.1, 0.4, 0.77, 1.0, 2.0, 5.3, 20.0}) {
    const int64_t fixed = int64_t(sigma * 65536), radius = blur_radius(fixed, 1000, 1000);
    int32_t w[kMaxRadius + 1];
    ASSERT_LE(radius, kMaxRadius);
    blur_weights(w, fixed, radius);
    double sum = 0, exact = 0;
    const auto gauss = [&](int64_t k) { return std::exp(-0.5 * double(k * k) / (sigma * sigma)); };
    for (int64_t k = -radius; k <= radius; ++k) sum += w[std::abs(k)], exact += gauss(k);
    EXPECT_EQ(sum, 1 << kBlurBits);
    for (int64_t k = 1; k <= radius; ++k)
      EXPECT_NEAR(w[k], gauss(k) / exact * (1 << kBlurBits), 1.5) << sigma << ' ' << k;
  }
  EXPECT_EQ(blur_radius(2 << kSigmaBits, 32, 4), 3);
}

// Byte b of channel c becomes 1000 c + b.
struct Case {
  Tensor images, index, table;
  Case(int64_t n, int64_t height, int64_t width, int64_t channels)
      : images({n, height, width, channels}, DType::u8), index({n}, DType::i64), table({channels, 256}) {
    for (int64_t i = 0; i < images.size(); ++i) images.data<uint8_t>()[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
    for (int64_t i = 0; i < n; ++i) index.data<int64_t>()[i] = n - 1 - i;
    for (int64_t i = 0; i < table.size(); ++i) table.data<float>()[i] = float(i / 256 * 1000 + i % 256);
  }
  Tensor run(const ViewAugmentation& what, int view = 0, int64_t height = 0, int64_t width = 0,
             uint64_t epoch = 4) const {
    Tensor y({index.size(), height ? height : images.dim(1), width ? width : images.dim(2), images.dim(3)});
    random_view(y, images, index, table, RandomViewParams(what, 9, epoch, view, false));
    return y;
  }
  Image image(int64_t i) const {
    Image x(images.dim(1), images.dim(2), images.dim(3));
    std::copy_n(images.data<uint8_t>() + i * int64_t(x.bytes.size()), x.bytes.size(), x.bytes.begin());
    return x;
  }
};

// Image b of y holds these bytes, through the table.
bool is_image(const Tensor& y, int64_t b, const Image& want) {
  const auto size = int64_t(want.bytes.size());
  for (int64_t i = 0; i < size; ++i)
    if (y.data<float>()[b * size + i] != float(i % want.channels * 1000 + want.bytes[size_t(i)])) return false;
  return true;
}

TEST(RandomView, IsWhatPlainLoopsMakeOfIt) {
  struct Size {
    int64_t n, height, width, channels, out_height, out_width;
  };
  const ViewAugmentation colourless{.jitter = 0, .gray = 0, .blur = 0.5, .blur_high = 20, .solarize = 0.3};
  for (const Size& s : {Size{60, 32, 32, 3, 32, 32},
                        {20, 33, 21, 3, 17, 9},
                        {20, 7, 9, 3, 16, 20},
                        {20, 40, 40, 1, 12, 12},
                        {4, 70, 70, 1, 64, 66},
                        {20, 9, 8, 4, 8, 8},
                        {5, 1, 1, 3, 3, 2}}) {
    const Case in(s.n, s.height, s.width, s.channels);
    const ViewAugmentation& what = s.channels == 3 ? kAll : colourless;
    const RandomViewParams params(what, 9, 4, 2, false);
    std::vector<Image> want;
    for (int64_t b = 0; b < s.n; ++b)
      want.push_back(plain_view(in.image(s.n - 1 - b), draw_view(params, s.n - 1 - b, s.height, s.width), s.out_height,
                                s.out_width));
    with_every_isa([&] {
      for (int threads : {1, 3}) {
        const Tensor y = test::with_threads(threads, [&] { return in.run(what, 2, s.out_height, s.out_width); });
        for (int64_t b = 0; b < s.n; ++b)
          ASSERT_TRUE(is_image(y, b, want[size_t(b)])) << "image " << b << " of " << s.height << " x " << s.width;
      }
    });
  }
}

TEST(RandomView, NothingIsTheImageAndAFlipItsMirror) {
  for (int64_t channels : {1, 2, 3, 4}) {
    const Case in(6, 11, 12, channels);
    ViewAugmentation mirror = kNothing;
    mirror.flip = 1;
    const Tensor y = in.run(kNothing), flipped = in.run(mirror);
    for (int64_t b = 0; b < 6; ++b) {
      const Image x = in.image(5 - b);
      Image mirrored = x;
      for (int64_t i = 0; i < int64_t(x.bytes.size()); ++i)
        mirrored.bytes[size_t(i)] = x.at(i / channels / 12, 11 - i / channels % 12, i % channels);
      EXPECT_TRUE(is_image(y, b, x)) << channels;
      EXPECT_TRUE(is_image(flipped, b, mirrored)) << channels;
    }
  }
}

TEST(RandomView, DependsOnSeedEpochSampleAndView) {
  const Case in(20, 16, 16, 3);
  const Tensor y = in.run(kAll);
  EXPECT_TRUE(test::same_bytes(in.run(kAll), y));
  EXPECT_FALSE(test::same_bytes(in.run(kAll, 1), y));
  EXPECT_FALSE(test::same_bytes(in.run(kAll, 0, 0, 0, 5), y));
  Tensor gathered = empty_like(in.images), from_gathered({20, 16, 16, 3});
  for (int64_t b = 0; b < 20; ++b)
    std::copy_n(in.images.data<uint8_t>() + (19 - b) * 768, 768, gathered.data<uint8_t>() + b * 768);
  random_view(from_gathered, gathered, in.index, in.table, RandomViewParams(kAll, 9, 4, 0, true));
  EXPECT_TRUE(test::same_bytes(from_gathered, y));
  for (DType dtype : {DType::bf16, DType::f16, DType::f64})
    dispatch_float(dtype, [&]<class T>() {
      Tensor table(in.table.shape(), dtype), other(y.shape(), dtype);
      for (int64_t i = 0; i < table.size(); ++i) table.data<T>()[i] = T(compute_t<T>(in.table.data<float>()[i]));
      random_view(other, in.images, in.index, table, RandomViewParams(kAll, 9, 4, 0, false));
      for (int64_t i = 0; i < y.size(); ++i) {
        const T want(compute_t<T>(y.data<float>()[i]));
        ASSERT_EQ(compute_t<T>(other.data<T>()[i]), compute_t<T>(want));
      }
    });
}

// What is left after a crop: the same choices, made of the crop as of a whole image.
TEST(RandomView, AWholeImageIsNotCropped) {
  const Case in(20, 16, 20, 3);
  RandomViewParams params(kAll, 9, 4, 0, false);
  params.precropped = true;
  Tensor levels(in.table.shape(), DType::u8), y({20, 12, 8, 3}, DType::u8);
  for (int64_t i = 0; i < levels.size(); ++i) levels.data<uint8_t>()[i] = uint8_t(i);
  random_view(y, in.images, in.index, levels, params);
  for (int64_t b = 0; b < 20; ++b) {
    RandomView v = draw_view(RandomViewParams(kAll, 9, 4, 0, false), 19 - b, 16, 20);
    v.top = v.left = 0, v.height = 16, v.width = 20;
    const Image want = plain_view(in.image(19 - b), v, 12, 8);
    EXPECT_TRUE(std::equal(want.bytes.begin(), want.bytes.end(), y.data<uint8_t>() + b * 288)) << "image " << b;
  }
}

}  // namespace
}  // namespace ringtape
