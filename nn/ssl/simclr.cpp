#include <cmath>

#include "nn/loss/nt_xent.h"
#include "nn/ssl/method.h"

// Chen et al., "A simple framework for contrastive learning of visual representations", 2020.
namespace ringtape::nn {
namespace {

struct SimClrOptions {
  double temperature = 0.5;  // divisor of similarities
  HeadOptions projection{512, 128, "none"};
  bool gather = false;
};
void visit(Fields& f, SimClrOptions& o) {
  f("temperature", o.temperature,
    {.help = "temperature by which similarities are divided", .unit = "X", .range = kAboveZero, .unset = "0"});
  visit_projection(f, o.projection);
  visit_gather(f, o.gather);
}

class SimClr : public Method {
 public:
  SimClr(Encoder encoder, const SimClrOptions& o) : Method(std::move(encoder), o.gather), temperature_(o.temperature) {}

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return nt_xent_loss(z[0], z[1], temperature_, gathering()); }
  std::optional<double> collapsed_loss(int64_t n) const override {
    return std::log(double(2 * n * (gathering() ? ranks() : 1) - 1));
  }
  std::string str() const override { return concat("SimCLR(temperature ", temperature_, ")"); }

 private:
  double temperature_;
};

const RegisterMethod register_simclr({.name = "simclr",
                                      .summary = "views of the same image attract, all other views of the batch repel",
                                      .settings = SimClrOptions{},
                                      .make = make_with_encoder<SimClr, SimClrOptions>,
                                      .repeats = true});

}  // namespace
}  // namespace ringtape::nn
