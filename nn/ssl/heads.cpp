#include "nn/ssl/heads.h"

#include "nn/activation.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"

namespace ringtape::nn {

HeadNorm parse_head_norm(const std::string& name) {
  if (name == "none") return HeadNorm::none;
  if (name == "hidden") return HeadNorm::hidden;
  if (name == "all") return HeadNorm::all;
  RT_CHECK_AS(UsageError, name == "plain", "batch normalisation of a head: expected none, hidden, all or plain, got '", name, "'");
  return HeadNorm::plain;
}

int64_t head_width(const HeadOptions& options, const HeadDefaults& defaults) { return options.out > 0 ? options.out : defaults.out; }

std::unique_ptr<Sequential> make_head(int64_t in, const HeadOptions& options, const HeadDefaults& defaults) {
  const int64_t layers = options.layers > 0 ? options.layers : 2, hidden = options.hidden > 0 ? options.hidden : defaults.hidden;
  const HeadNorm norm = options.norm.empty() ? defaults.norm : parse_head_norm(options.norm);
  auto head = std::make_unique<Sequential>();
  for (int64_t i = 0; i < layers; ++i) {
    const bool last = i == layers - 1;
    const int64_t out = last ? head_width(options, defaults) : hidden;
    const bool normed = norm != HeadNorm::none && !(norm == HeadNorm::hidden && last);
    head->add<Linear>(in, out, options.bias || !normed);
    if (normed) head->add<BatchNorm>(out, BatchNorm::Options{.affine = norm != HeadNorm::plain || !last});
    if (!last) head->add<ReLU>();
    in = out;
  }
  return head;
}

}  // namespace ringtape::nn
