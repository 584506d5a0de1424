#include "nn/loss/negative_cosine.h"
#include "nn/ssl/method.h"

// Chen and He, "Exploring simple Siamese representation learning", 2021.
namespace ringtape::nn {
namespace {

constexpr HeadDefaults kProjection{2048, 2048, HeadNorm::all}, kPrediction{512, 2048, HeadNorm::hidden};

class SimSiam : public Method {
 public:
  SimSiam(Encoder encoder, std::unique_ptr<Module> prediction) : Method(std::move(encoder)), prediction_(std::move(prediction)) {}

  // z0, z1, p0, p1: projections, and what is predicted from them for the other view.
  Tensors outputs(const Tensors& views) override {
    const Tensor z0 = encode(views[0]), z1 = encode(views[1]);
    return {z0.detach(), z1.detach(), (*prediction_)(z0), (*prediction_)(z1)};
  }
  Tensor loss(const Tensors& y) override { return (negative_cosine(y[2], y[1]) + negative_cosine(y[3], y[0])) * 0.5; }
  std::optional<double> collapsed_loss(int64_t) const override { return -1; }
  bool can_gather() const override { return false; }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.child("prediction", *prediction_);
  }
  std::string str() const override { return "SimSiam"; }

 private:
  std::unique_ptr<Module> prediction_;
};

std::unique_ptr<Method> make(const MakeModule& backbone, int64_t features, const MethodOptions& o) {
  HeadDefaults prediction = kPrediction;
  prediction.out = head_width(o.projection, kProjection);
  auto encoder = Encoder{backbone(), make_head(features, o.projection, kProjection)};
  return std::make_unique<SimSiam>(std::move(encoder), make_head(prediction.out, o.prediction, prediction));
}

const RegisterMethod registered({"simsiam", "predicts one view's projection from the other's, which stands still", make});

}  // namespace
}  // namespace ringtape::nn
