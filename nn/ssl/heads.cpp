#include "nn/ssl/heads.h"

#include "core/registry.h"
#include "nn/activation.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"

namespace ringtape::nn {
namespace {

// Whether a head has batch normalisation after the hidden layers and after the last one, and whether that last one has
// weight and bias.
struct HeadNorm {
  const char* name;
  bool hidden, last, affine;
};
constexpr HeadNorm kNorms[] = {
    {"none", false, false, false},
    {"hidden", true, false, false},
    {"all", true, true, true},
    {"plain", true, true, false},  // as in SimSiam's paper
};

std::vector<std::string> norms() { return names_of(kNorms); }

}  // namespace

void visit_projection(Fields& f, HeadOptions& o) {
  f("projection-hidden", o.hidden,
    {.help = "width of the projection head's hidden layers", .unit = "N", .range = kPositive, .unset = "0"});
  f("projection-dim", o.out,
    {.help = "width of the projection head's output", .unit = "N", .range = kPositive, .unset = "0"});
  f("projection-layers", o.layers,
    {.help = "linear layers of the projection head", .unit = "N", .range = kPositive, .unset = "0"});
  f("projection-norm", o.norm,
    {.help = "batch normalisation in the projection head (hidden: after all layers except the last; plain: after all "
             "layers, the last one without weight and bias)",
     .unit = "WHERE",
     .choices = norms,
     .unset = "method"});
  f("head-bias", o.bias, {.help = "linear layers of the heads have a bias even if batch normalisation follows"});
}

void visit_prediction(Fields& f, HeadOptions& o) {
  f("prediction-hidden", o.hidden,
    {.help = "width of the prediction head's hidden layer", .unit = "N", .range = kPositive, .unset = "0"});
  f("prediction-norm", o.norm,
    {.help = "batch normalisation in the prediction head, with the meanings of --projection-norm",
     .unit = "WHERE",
     .choices = norms,
     .unset = "method"});
}

std::unique_ptr<Sequential> make_head(int64_t in, const HeadOptions& options) {
  const HeadNorm& norm = find_entry(kNorms, options.norm, "batch normalisation of a head");
  auto head = std::make_unique<Sequential>();
  for (int64_t i = 0; i < options.layers; ++i) {
    const bool last = i == options.layers - 1, normed = last ? norm.last : norm.hidden;
    const int64_t out = last ? options.out : options.hidden;
    const bool bias = options.bias || !normed;
    if (options.transformer) head->add<Linear>(small_normal({out, in}), bias ? leaf(zeros({out})) : Tensor());
    else head->add<Linear>(in, out, bias);
    if (normed) head->add<BatchNorm>(out, BatchNorm::Options{.affine = !last || norm.affine});
    if (!last) options.transformer ? head->add<GELU>() : head->add<ReLU>();
    in = out;
  }
  return head;
}

std::unique_ptr<Sequential> make_prediction(const HeadOptions& projection, HeadOptions prediction) {
  prediction.out = projection.out;
  prediction.bias = projection.bias;
  return make_head(projection.out, prediction);
}

}  // namespace ringtape::nn
