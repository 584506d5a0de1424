#include <cmath>

#include "nn/loss/nt_xent.h"
#include "nn/ssl/method.h"

// Chen et al., "A simple framework for contrastive learning of visual representations", 2020.
namespace ringtape::nn {
namespace {

constexpr HeadDefaults kProjection{512, 128, HeadNorm::none};

class SimClr : public Method {
 public:
  SimClr(Encoder encoder, const MethodOptions& o) : Method(std::move(encoder)), temperature_(o.temperature > 0 ? o.temperature : 0.5) {}

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return nt_xent_loss(z[0], z[1], temperature_, gathering()); }
  std::optional<double> collapsed_loss(int64_t n) const override {
    return std::log(double(2 * n * (gathering() ? ranks() : 1) - 1));
  }
  std::string str() const override { return concat("SimCLR(temperature ", temperature_, ")"); }

 private:
  double temperature_;
};

std::unique_ptr<Method> make(const MakeModule& backbone, int64_t features, const MethodOptions& o) {
  return std::make_unique<SimClr>(Encoder{backbone(), make_head(features, o.projection, kProjection)}, o);
}

const RegisterMethod registered({"simclr", "views of one image attract, all others of the batch repel", make});

}  // namespace
}  // namespace ringtape::nn
