#include "train/data/transform.h"

#include "core/random.h"

namespace ringtape {

double TransformedImage::uniform(uint32_t number) const {
  RT_CHECK(number < (1u << 16), "transform: random number ", number, " of an image");
  const uint64_t stream = uint64_t(Stream::transforms) | uint64_t(order) << 8 | uint64_t(view) << 16;
  const Philox4 r = philox(seed, stream | uint64_t(epoch) << 24, uint64_t(sample) << 14 | number / 4);
  return double(r.x[number % 4]) * 0x1p-32;
}

static std::vector<TransformEntry>& registered_transforms() {
  static std::vector<TransformEntry> all;
  return all;
}
std::span<const TransformEntry> transforms() { return registered_transforms(); }
RegisterTransform::RegisterTransform(const TransformEntry& entry) { add_entry(registered_transforms(), entry); }

void visit(Fields& f, TransformOptions& o) {
  if (transforms().empty()) return;
  f("transform", o.chosen.names,
    {.help = "changes of training images that this program brings, before their augmentation: names, separated by "
             "commas; `list transforms` has them",
     .unit = "NAME,...",
     .automatic = "none",
     .selects = true});
}

Transforms make_transforms(const TransformOptions& options) {
  options.chosen.check("transform");
  Transforms out;
  for (const std::string& name : options.chosen.chosen())
    out.push_back(find_entry(transforms(), name, "transform").make(options.chosen.settings.of(name)));
  return out;
}

}  // namespace ringtape
