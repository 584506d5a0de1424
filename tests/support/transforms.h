#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/random.h"
#include "tests/support/support.h"
#include "train/data/loader.h"

// A transform, and the batches that it makes, for tests on several devices.
namespace ringtape::test {

struct StampOptions {
  int64_t size = 3;
};
inline void visit(Fields& f, StampOptions& o) {
  f("stamp-size", o.size, {.help = "side of the square", .unit = "N", .range = {0, 99}});
}

// Sets a square of random bytes at a random place.
struct Stamp : Transform {
  explicit Stamp(const StampOptions& o) : size(o.size) {}
  void apply(const TransformedImage& i) const override {
    const auto top = int64_t(i.uniform(0) * double(i.height)), left = int64_t(i.uniform(1) * double(i.width));
    for (int64_t y = top; y < std::min(top + size, i.height); ++y)
      for (int64_t x = left; x < std::min(left + size, i.width); ++x)
        for (int64_t c = 0; c < i.channels; ++c)
          i.bytes[(y * i.width + x) * i.channels + c] =
              uint8_t(256 * i.uniform(uint32_t(2 + (y - top) * size + x - left)));
  }
  const int64_t size;
};

inline Dataset shapes_for_transforms() {
  Dataset out{.name = "noise",
              .images = Tensor({45, 10, 12, 3}, DType::u8),
              .labels = Tensor({45}, DType::i64),
              .classes = 5,
              .mean = {0.5, 0.4, 0.3},
              .deviation = {0.2, 0.3, 0.25}};
  for (int64_t i = 0; i < out.images.size(); ++i)
    out.images.data<uint8_t>()[i] = uint8_t(philox(3, uint64_t(Stream::test), uint64_t(i)).x[0]);
  for (int64_t i = 0; i < 45; ++i) out.labels.data<int64_t>()[i] = i % 5;
  return out;
}

// The bytes of all batches of two epochs, in the order of the samples over all ranks.
inline std::string stamped_batches(Device device, bool views, int ranks, int workers, int64_t size = 3) {
  const Dataset data = shapes_for_transforms();
  std::string out;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::map<std::pair<int64_t, size_t>, std::string> parts;  // by batch and view
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderConfig config{.batch_size = 10, .shuffle = true, .seed = 7, .workers = workers, .device = device};
      config.augmentation = {.pad = 2, .flip = true};
      if (views) config.views.resize(2), config.views[1].size = 6;
      config.transforms = {std::make_shared<Stamp>(StampOptions{size})};
      config.rank = rank, config.ranks = ranks;
      for (const Batch& batch : Loader(data, all_samples(data), config).epoch(epoch))
        for (size_t v = 0; v < batch.images().size(); ++v) {
          const Tensor host = batch.images()[v].copy_to(Device{});
          parts[{batch.index, v}].append(static_cast<const char*>(View(host).data), size_t(host.size()) * 4);
        }
    }
    for (const auto& [where, bytes] : parts) out += bytes;
  }
  return out;
}

}  // namespace ringtape::test
