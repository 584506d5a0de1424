#include "nn/loss/vicreg.h"

#include "nn/ssl/method.h"

// Bardes, Ponce and LeCun, "VICReg: variance-invariance-covariance regularization for self-supervised learning", 2022.
namespace ringtape::nn {
namespace {

struct VicregSettings {
  HeadOptions projection{2048, 2048};
  bool gather = false;
};
void visit(Fields& f, VicregSettings& o) {
  visit_projection(f, o.projection);
  visit_gather(f, o.gather);
}

class Vicreg : public Method {
 public:
  Vicreg(Encoder encoder, const VicregSettings& o) : Method(std::move(encoder), o.gather) {}

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return vicreg_loss(z[0], z[1], {}, gathering()); }
  std::string str() const override { return "VICReg"; }
};

const RegisterMethod register_vicreg({.name = "vicreg",
                                      .summary = "makes two views' outputs similar, of high variance and uncorrelated",
                                      .settings = VicregSettings{},
                                      .make = make_with_encoder<Vicreg, VicregSettings>,
                                      .repeats = true});

}  // namespace
}  // namespace ringtape::nn
