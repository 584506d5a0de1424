#include "nn/loss/negative_cosine.h"
#include "nn/ssl/method.h"

// Chen and He, "Exploring simple Siamese representation learning", 2021.
namespace ringtape::nn {
namespace {

struct SimSiamOptions {
  HeadOptions projection{2048, 2048, "all"}, prediction{512, 2048};
  bool fixed_prediction_lr = false;
};
void visit(Fields& f, SimSiamOptions& o) {
  visit_projection(f, o.projection);
  visit_prediction(f, o.prediction);
  f("fixed-prediction-lr", o.fixed_prediction_lr,
    {.help = "the prediction head learns at the peak learning rate throughout, without schedule and warm-up"});
}

class SimSiam : public Method {
 public:
  SimSiam(Encoder encoder, const SimSiamOptions& o)
      : Method(std::move(encoder)), prediction_(make_prediction(o.projection, o.prediction)),
        fixes_lr_(o.fixed_prediction_lr) {}

  // z0, z1, p0, p1: projections, and predictions from them for the other view.
  Tensors outputs(const Tensors& views) override {
    const Tensor z0 = encode(views[0]), z1 = encode(views[1]);
    return {z0.detach(), z1.detach(), (*prediction_)(z0), (*prediction_)(z1)};
  }
  Tensor loss(const Tensors& y) override { return (negative_cosine(y[2], y[1]) + negative_cosine(y[3], y[0])) * 0.5; }
  std::optional<double> collapsed_loss(int64_t) const override { return -1; }
  bool fixes_prediction_lr() const override { return fixes_lr_; }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.child("prediction", *prediction_);
  }
  std::string str() const override { return "SimSiam"; }

 private:
  std::unique_ptr<Module> prediction_;
  bool fixes_lr_;
};

const RegisterMethod register_simsiam({.name = "simsiam",
                                       .summary = "predicts one view's projection from the other's, a constant target",
                                       .settings = SimSiamOptions{},
                                       .make = make_with_encoder<SimSiam, SimSiamOptions>,
                                       .each_image = true,
                                       .repeats = true});

}  // namespace
}  // namespace ringtape::nn
