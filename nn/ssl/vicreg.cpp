#include "nn/loss/vicreg.h"
#include "nn/ssl/method.h"

// Bardes, Ponce and LeCun, "VICReg: variance-invariance-covariance regularization for self-supervised learning", 2022.
namespace ringtape::nn {
namespace {

constexpr HeadDefaults kProjection{2048, 2048, HeadNorm::hidden};

class Vicreg : public Method {
 public:
  explicit Vicreg(Encoder encoder) : Method(std::move(encoder)) {}

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return vicreg_loss(z[0], z[1], {}, gathering()); }
  std::string str() const override { return "VICReg"; }
};

std::unique_ptr<Method> make(const MakeModule& backbone, int64_t features, const MethodOptions& o) {
  return std::make_unique<Vicreg>(Encoder{backbone(), make_head(features, o.projection, kProjection)});
}

const RegisterMethod registered({"vicreg", "outputs of two views are alike, spread out and uncorrelated", make});

}  // namespace
}  // namespace ringtape::nn
