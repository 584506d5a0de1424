#include "train/weights/first_weight.h"

#include "core/check.h"
#include "train/weights/weights.h"

namespace ringtape {

void check_first_weight(const std::string& path, const SafetensorsHeader& header, const ModelEntry& model,
                        const ModelSpec& spec, bool image_known) {
  if (!model.first || !is_own(header.metadata)) return;
  const NamedShape want = model.first(spec);
  const TensorEntry* have = header.find(want.name);
  if (!have) have = header.find("backbone." + want.name);
  RT_CHECK_AS(FormatError, have, path, ": no tensor '", want.name, "'; was it trained with another --model?");
  const Shape shape(std::span<const int64_t>(have->shape));
  const bool fits = image_known ? shape == want.shape : shape.rank() == want.shape.rank() && shape[0] == want.shape[0];
  RT_CHECK_AS(FormatError, fits, path, ": tensor '", want.name, "' is ", have->dtype, " ", shape, ", the model's is ",
              DType::f32, " ", image_known ? want.shape.str() : concat("(", want.shape[0], ", ...)"));
}

}  // namespace ringtape
