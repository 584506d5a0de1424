#include <algorithm>

#include "autograd/create.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "nn/loss/common.h"
#include "nn/ssl/method.h"
#include "nn/vit.h"

// He et al., "Masked autoencoders are scalable vision learners", 2022.
namespace ringtape::nn {
namespace {

struct MaeOptions {
  double masked = 0.75;
  int64_t width = 512, depth = 1, heads = 16;  // of the decoder
};
void visit(Fields& f, MaeOptions& o) {
  f("mask-ratio", o.masked,
    {.help = "part of the patches that the encoder does not see", .unit = "X", .range = kFraction});
  f("decoder-width", o.width, {.help = "width of the decoder's tokens", .unit = "N", .range = kPositive});
  f("decoder-depth", o.depth, {.help = "blocks of the decoder", .unit = "N", .range = kCount});
  f("decoder-heads", o.heads, {.help = "heads of the decoder's attention", .unit = "N", .range = kPositive});
}

// The tokens `index` (n, k) of x (n, T, D) -> (n, k, D).
Tensor tokens_at(const Tensor& x, const Tensor& index) {
  const int64_t n = x.dim(0), tokens = x.dim(1), width = x.dim(2);
  const Tensor base = reshape(arange(n, DType::i64, x.device()) * tokens, {n, 1});
  return reshape(index_select(reshape(x, {n * tokens, width}), 0, reshape(index + base, {index.size()})),
                 {n, index.dim(1), width});
}

class Mae : public Method {
 public:
  Mae(Encoder encoder, const MaeOptions& o)
      : Method(std::move(encoder)), vit_(dynamic_cast<VisionTransformer&>(*encoder_.backbone)), options_(o),
        mask_token_(small_normal({1, 1, o.width})), norm_({o.width}, kTransformerNorm),
        prediction_(Linear::small(o.width, vit_.patch() * vit_.patch() * vit_.channels())) {
    const Grid grid = vit_.grid();
    tokens_ = grid[0] * grid[1];
    RT_CHECK_AS(UsageError, tokens_ > 1, "--method mae: images of one patch; use a smaller --patch");
    seen_ = std::clamp<int64_t>(int64_t(double(tokens_) * (1 - o.masked)), 1, tokens_ - 1);
    positions_ = sine_positions(1, grid, o.width);
    for (int64_t i = 0; i < o.depth; ++i)
      blocks_.add<TransformerBlock>(
          TransformerBlock::Options{.width = o.width, .heads = o.heads, .hidden = 4 * o.width});
  }

  void begin_step(const Moment& moment) override { step_ = moment; }
  // A number for each patch of each row: those with the smallest are seen. The same for any number of ranks.
  Tensors inputs(const Tensors& views) override {
    Tensors out = views;
    Generator& generator = default_generator();
    const RandomState before = generator.state();
    const int64_t n = views[0].dim(0), first = group() ? group()->rank() * n : 0;
    for (size_t v = 0; v < views.size(); ++v) {
      generator.set_state({step_.seed, Stream::masks, (uint64_t(step_.step) * views.size() + v) << 32});
      const Tensor all = rand({ranks() * n, tokens_}, 0, 1, DType::f32, views[0].device());
      out.push_back(slice(all, 0, first, first + n));
    }
    generator.set_state(before);
    return out;
  }
  // Of each view: the pixels of the hidden patches as predicted, then as they are, normalised.
  Tensors outputs(const Tensors& inputs) override {
    Tensors out;
    const size_t views = inputs.size() / 2;
    for (size_t v = 0; v < views; ++v) {
      const Tensor order = argsort(inputs[views + v], 1), hidden = slice(order, 1, seen_, kToEnd);
      out.push_back(flatten(predicted(inputs[v], order, hidden)));
      out.push_back(flatten(pixels(inputs[v], hidden)));
    }
    return out;
  }
  Tensor loss(const Tensors& y) override {
    Tensor out;
    for (size_t v = 0; v < y.size(); v += 2) {
      const Tensor one = mse_loss(wide(y[v]), wide(y[v + 1]));
      out = out.defined() ? out + one : one;
    }
    return out / (double(y.size()) / 2);
  }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.parameter("mask_token", mask_token_);
    v.buffer("decoder_positions", positions_);
    v.child("decoder", blocks_);
    v.child("decoder_norm", norm_);
    v.child("prediction", prediction_);
  }
  std::string str() const override { return concat("MAE(", options_.masked * 100, " % masked)"); }

 private:
  // (n, hidden patches, pixels of a patch)
  Tensor predicted(const Tensor& view, const Tensor& order, const Tensor& hidden) {
    const int64_t n = view.dim(0);
    const Tensor none = zeros({n, 1}, DType::i64, view.device());
    const Tensor seen = concat({none, slice(order, 1, 0, seen_) + 1}, 1);  // behind the class token
    const Tensor encoded = vit_.encoded(tokens_at(vit_.tokens(view), seen));
    probe(squeeze(slice(encoded, 1, 0, 1), 1));
    const Tensor known = (*encoder_.projection)(encoded);
    const Tensor all = concat({known, expand(cast(mask_token_, known.dtype()), {n, 1, options_.width})}, 1);
    const Tensor place = concat({none, minimum(argsort(order, 1), seen_) + 1}, 1);  // of each token among these
    const Tensor decoded = norm_(blocks_(tokens_at(all, place) + positions_));
    return prediction_(tokens_at(decoded, hidden + 1));
  }
  // The same, by mean and standard deviation of each patch.
  Tensor pixels(const Tensor& view, const Tensor& hidden) const {
    const NoGrad no_grad;
    const int64_t n = view.dim(0), patch = vit_.patch(), colours = view.dim(3);
    const Tensor split = reshape(view, {n, view.dim(1) / patch, patch, view.dim(2) / patch, patch, colours});
    const Tensor x =
        tokens_at(reshape(permute(split, {0, 1, 3, 2, 4, 5}), {n, tokens_, patch * patch * colours}), hidden);
    return (x - mean(x, {2}, true)) * rsqrt(var(x, {2}, true) + 1e-6);
  }

  VisionTransformer& vit_;
  MaeOptions options_;
  Tensor mask_token_, positions_;
  Sequential blocks_;
  LayerNorm norm_;
  Linear prediction_;
  int64_t tokens_, seen_;  // patches of an image
  Moment step_;
};

std::unique_ptr<Method> make_mae(const Backbone& backbone, const Settings& settings) {
  const auto& o = settings.as<MaeOptions>();
  auto vit = backbone.make();
  RT_CHECK_AS(UsageError, dynamic_cast<VisionTransformer*>(vit.get()),
              "--method mae: hides tokens of a vision transformer, but --model makes ", vit->str(),
              "; use --model vit_tiny");
  auto projection = std::make_unique<Linear>(small_normal({o.width, backbone.features}), leaf(zeros({o.width})));
  return std::make_unique<Mae>(Encoder{std::move(vit), std::move(projection)}, o);
}

const RegisterMethod register_mae({.name = "mae",
                                   .summary = "predicts the pixels of hidden patches from the others",
                                   .settings = MaeOptions{},
                                   .make = make_mae,
                                   .least_views = 1,
                                   .apart = true,
                                   .model = "vit_tiny"});

}  // namespace
}  // namespace ringtape::nn
