#include "nn/loss/dcl.h"

#include <cmath>

#include "nn/ssl/method.h"

// Yeh et al., "Decoupled contrastive learning", 2022.
namespace ringtape::nn {
namespace {

struct DclOptions {
  double temperature = 0.1;  // divisor of similarities
  HeadOptions projection{512, 128, "none"};
  bool gather = false;
};
void visit(Fields& f, DclOptions& o) {
  f("temperature", o.temperature,
    {.help = "temperature by which similarities are divided", .unit = "X", .range = kAboveZero});
  visit_projection(f, o.projection);
  visit_gather(f, o.gather);
}

class Dcl : public Method {
 public:
  Dcl(Encoder encoder, const DclOptions& o) : Method(std::move(encoder), o.gather), temperature_(o.temperature) {}

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return dcl_loss(z[0], z[1], temperature_, gathering()); }
  std::optional<double> collapsed_loss(int64_t n) const override {
    return std::log(double(2 * n * (gathering() ? ranks() : 1) - 2));
  }
  std::string str() const override { return concat("DCL(temperature ", temperature_, ")"); }

 private:
  double temperature_;
};

const RegisterMethod register_dcl(
    {.name = "dcl",
     .summary = "like simclr, but without the positive pair in the denominator of the loss",
     .settings = DclOptions{},
     .make = make_with_encoder<Dcl, DclOptions>,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
