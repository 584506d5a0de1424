#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/settings.h"

namespace ringtape {

// An image of a batch, as bytes (height, width, channels) that a transform changes in place.
struct TransformedImage {
  uint8_t* bytes;
  int64_t height, width, channels;
  int64_t sample;  // of the data set; with --balanced-sampling see balanced()
  int view;        // 0 for training with labels
  int64_t epoch;
  uint64_t seed;  // of the run
  int order;      // of the transform among those of the run

  // In [0, 1), for `number` below 65,536: depends on nothing but it and what is above, so that a batch has the same
  // bytes for any number of workers and ranks and after resuming.
  double uniform(uint32_t number) const;
};

// A change of training images of one's own, before the augmentation or the views are made, which still move and
// normalise what it returns; but after a random crop that is cut from an encoded image. Called on the host, by
// several threads at once. An exception ends the training with its text.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual void apply(const TransformedImage& image) const = 0;
};
using Transforms = std::vector<std::shared_ptr<const Transform>>;

// A transform that the command line knows by name, as --transform NAME,NAME.
struct TransformEntry {
  const char* name;
  const char* summary;  // one line
  Settings settings = {};
  std::unique_ptr<Transform> (*make)(const Settings& settings);
};
std::span<const TransformEntry> transforms();
struct RegisterTransform {
  explicit RegisterTransform(const TransformEntry& entry);
};

// `make` of a transform that is constructed from its settings.
template <class Made, class Options> std::unique_ptr<Transform> make_transform(const Settings& settings) {
  return std::make_unique<Made>(settings.as<Options>());
}

struct TransformOptions {
  Selections chosen{transforms()};
};
void visit(Fields& f, TransformOptions& o);  // except the settings of each transform

Transforms make_transforms(const TransformOptions& options);  // throws UsageError for unknown names and repeated ones

}  // namespace ringtape
