#include "train/data/sets/shapes.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/random.h"

namespace ringtape {
namespace {

constexpr int kShapesSide = 32, kShapesChannels = 3;
constexpr int64_t kMax = 10'000'000;  // images per split: 31 GB

// Uniform random numbers for one image, in the order of the calls.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t split, uint64_t image)
      : seed_(seed), stream_(uint64_t(Stream::synthetic) | split << 8), counter_(image << 16) {}
  float operator()(float low, float high) { return low + (high - low) * uniform_from_bits(bits()); }
  uint32_t bits() {
    if (used_ == 4) block_ = philox(seed_, stream_, counter_++), used_ = 0;
    return block_.x[used_++];
  }

 private:
  uint64_t seed_, stream_, counter_;
  Philox4 block_{};
  int used_ = 4;
};

// Signed distance (negative inside) to a shape of about unit radius; x to the right, y up.
struct Drawing {
  const char* name;
  float (*distance)(float x, float y);
};

float box(float x, float y, float w, float h) { return std::max(std::abs(x) - w, std::abs(y) - h); }

float star(float x, float y) {
  constexpr float kSector = 2 * float(M_PI) / 5;
  const float angle = std::atan2(x, y), r = std::hypot(x, y);
  const float a = std::abs(angle - kSector * std::round(angle / kSector));  // from the nearest point, [0, 36 degrees]
  // Distance to the line from the point (r = 1.1, a = 0) to the notch (r = 0.45, a = 36 degrees).
  const float px = r * std::sin(a), py = r * std::cos(a), qx = 0.45f * 0.5878f, qy = 0.45f * 0.8090f;
  const float dx = qx, dy = qy - 1.1f;
  return (dx * (1.1f - py) + dy * px) / -std::hypot(dx, dy);
}

const Drawing kKinds[] = {
    {"circle", [](float x, float y) { return std::hypot(x, y) - 0.9f; }},
    {"square", [](float x, float y) { return box(x, y, 0.8f, 0.8f); }},
    {"triangle", [](float x, float y) { return std::max(0.866f * std::abs(x) + 0.5f * y - 0.5f, -y - 0.6f); }},
    {"diamond", [](float x, float y) { return 0.83f * std::abs(x) + 0.55f * std::abs(y) - 0.6f; }},
    {"cross", [](float x, float y) { return std::min(box(x, y, 1, 0.3f), box(x, y, 0.3f, 1)); }},
    {"ring", [](float x, float y) { return std::abs(std::hypot(x, y) - 0.75f) - 0.22f; }},
    {"star", star},
    {"crescent", [](float x, float y) { return std::max(std::hypot(x, y) - 1, 0.75f - std::hypot(x - 0.45f, y)); }},
    {"hourglass", [](float x, float y) { return std::max(0.7f * (std::abs(x) - std::abs(y)), std::abs(y) - 0.9f); }},
    {"bars", [](float x, float y) { return box(std::abs(x) - 0.6f, y, 0.25f, 0.9f); }},
};
constexpr int kShapesClasses = int(std::size(kKinds));

struct Colour {
  float c[kShapesChannels];
};

// A stripe pattern between two dark colours under noise, and a bright shape on it.
void paint(uint8_t* image, const Drawing& kind, Draw& draw) {
  Colour ground[2], ink;
  for (Colour& g : ground)
    for (float& c : g.c) c = draw(0.0f, 0.6f);
  for (float& c : ink.c) c = draw(0.25f, 1.0f);
  ink.c[draw.bits() % kShapesChannels] = draw(0.7f, 1.0f);

  const float centre_x = 15.5f + draw(-5, 5), centre_y = 15.5f + draw(-5, 5), radius = draw(6, 11);
  const float tilt = draw(-0.35f, 0.35f), cosine = std::cos(tilt), sine = std::sin(tilt);
  const float wave = draw(0.2f, 1.2f), direction = draw(0, float(M_PI)), phase = draw(0, 6);
  const float wave_x = wave * std::cos(direction), wave_y = wave * std::sin(direction);
  const float noise = draw(0.05f, 0.6f);

  for (int row = 0; row < kShapesSide; ++row)
    for (int column = 0; column < kShapesSide; ++column, image += kShapesChannels) {
      const float dx = float(column) - centre_x, dy = centre_y - float(row);
      const float x = (cosine * dx + sine * dy) / radius, y = (cosine * dy - sine * dx) / radius;
      const float cover = std::clamp(0.5f - kind.distance(x, y) * radius, 0.0f, 1.0f);
      const float mix = 0.5f + 0.5f * std::sin(wave_x * float(column) + wave_y * float(row) + phase);
      const uint32_t bits = draw.bits();
      for (int c = 0; c < kShapesChannels; ++c) {
        const float under = ground[0].c[c] + mix * (ground[1].c[c] - ground[0].c[c]);
        const float grain = noise * (float(bits >> (8 * c) & 255) / 255 - 0.5f);
        image[c] = uint8_t(255 * std::clamp(under + cover * (ink.c[c] - under) + grain, 0.0f, 1.0f) + 0.5f);
      }
    }
}

Dataset generate(int64_t n, uint64_t seed, uint64_t split) {
  Dataset set;
  set.name = "shapes";
  set.source = concat("generated, seed ", seed);
  set.classes = kShapesClasses;
  for (const Drawing& kind : kKinds) set.class_names.emplace_back(kind.name);
  set.mean = {0.36f, 0.36f, 0.36f};
  set.deviation = {0.23f, 0.23f, 0.23f};
  set.images = Tensor({n, kShapesSide, kShapesSide, kShapesChannels}, DType::u8);
  set.labels = Tensor({n}, DType::i64);
  auto* images = set.images.data<uint8_t>();
  auto* labels = set.labels.data<int64_t>();
  parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      labels[i] = i % kShapesClasses;
      Draw draw(seed, split, uint64_t(i));
      paint(images + i * kShapesSide * kShapesSide * kShapesChannels, kKinds[labels[i]], draw);
    }
  });
  return set;
}

}  // namespace

void visit(Fields& f, ShapesOptions& o) {
  f("train-size", o.train_size,
    {.help = "images to generate for training and validation",
     .unit = "N",
     .range = kPositive,
     .scope = FieldScope::weights});
  f("test-size", o.test_size,
    {.help = "images to generate for testing", .unit = "N", .range = kPositive, .scope = FieldScope::weights});
}

Splits load_shapes(const DataRequest& request) {
  const auto& o = request.settings.as<ShapesOptions>();
  const int64_t train = request.train ? o.train_size : 1, test = request.test ? o.test_size : 1;
  for (const auto& [flag, size] : {std::pair{"--train-size", train}, {"--test-size", test}})
    RT_CHECK_AS(UsageError, size >= 1 && size <= kMax, flag, " ", size, ": expected 1 to ", kMax, " images");
  constexpr int64_t kQuick = 30'000;  // images that take no noticeable time
  if (request.begins && train + test > kQuick) request.begins();
  return {generate(train, request.seed, 0), generate(test, request.seed, 1)};
}

}  // namespace ringtape
