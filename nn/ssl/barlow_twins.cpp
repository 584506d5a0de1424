#include "nn/loss/barlow_twins.h"
#include "nn/ssl/method.h"

// Zbontar et al., "Barlow Twins: self-supervised learning via redundancy reduction", 2021.
namespace ringtape::nn {
namespace {

constexpr HeadDefaults kProjection{2048, 2048, HeadNorm::hidden};

class BarlowTwins : public Method {
 public:
  BarlowTwins(Encoder encoder, const MethodOptions& o)
      : Method(std::move(encoder)), options_{.lambda = o.lambda, .scale = o.loss_scale, .unbiased = o.unbiased, .exact = o.exact} {}

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return barlow_twins_loss(z[0], z[1], options_, gathering()); }
  std::string str() const override { return concat("BarlowTwins(lambda ", options_.lambda, ")"); }

 private:
  BarlowTwinsOptions options_;
};

std::unique_ptr<Method> make(const MakeModule& backbone, int64_t features, const MethodOptions& o) {
  return std::make_unique<BarlowTwins>(Encoder{backbone(), make_head(features, o.projection, kProjection)}, o);
}

const RegisterMethod registered({"barlow_twins", "the correlation of two views' outputs is to be the identity", make});

}  // namespace
}  // namespace ringtape::nn
