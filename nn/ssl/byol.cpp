#include "nn/loss/negative_cosine.h"
#include "nn/ssl/teacher.h"

// Grill et al., "Bootstrap your own latent: a new approach to self-supervised learning", 2020.
namespace ringtape::nn {
namespace {

constexpr HeadDefaults kProjection{1024, 256, HeadNorm::hidden}, kPrediction{1024, 256, HeadNorm::hidden};

class Byol : public Method {
 public:
  Byol(Encoder encoder, Encoder teacher, std::unique_ptr<Module> prediction, const MethodOptions& o)
      : Method(std::move(encoder)),
        teacher_(encoder_, std::move(teacher), o.momentum, o.final_momentum),
        prediction_(std::move(prediction)) {}

  void begin_step(const Moment& moment) override { teacher_.follow(encoder_, moment); }
  // z0, z1, p0, p1: the teacher's projections, and what the student predicts for the other view.
  Tensors outputs(const Tensors& views) override {
    return {teacher_(views[0]), teacher_(views[1]), (*prediction_)(encode(views[0])), (*prediction_)(encode(views[1]))};
  }
  Tensor loss(const Tensors& y) override { return (negative_cosine(y[2], y[1]) + negative_cosine(y[3], y[0])) * 0.5; }
  std::optional<double> collapsed_loss(int64_t) const override { return -1; }
  bool can_gather() const override { return false; }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.child("prediction", *prediction_);
    teacher_.visit(v);
  }
  std::string str() const override { return "BYOL"; }

 private:
  Teacher teacher_;
  std::unique_ptr<Module> prediction_;
};

std::unique_ptr<Method> make(const MakeModule& backbone, int64_t features, const MethodOptions& o) {
  HeadDefaults prediction = kPrediction;
  prediction.out = head_width(o.projection, kProjection);
  const auto encoder = [&] { return Encoder{backbone(), make_head(features, o.projection, kProjection)}; };
  Encoder student = encoder(), teacher = encoder();
  return std::make_unique<Byol>(std::move(student), std::move(teacher), make_head(prediction.out, o.prediction, prediction), o);
}

const RegisterMethod registered({"byol", "predicts the projection of the other view by an average of earlier weights", make});

}  // namespace
}  // namespace ringtape::nn
