#include "nn/loss/negative_cosine.h"
#include "nn/ssl/teacher.h"

// Grill et al., "Bootstrap your own latent: a new approach to self-supervised learning", 2020.
namespace ringtape::nn {
namespace {

struct ByolOptions {
  HeadOptions projection{1024, 256}, prediction{1024, 256};
  bool fixed_prediction_lr = false;
  TeacherOptions teacher;
};
void visit(Fields& f, ByolOptions& o) {
  visit_projection(f, o.projection);
  visit_prediction(f, o.prediction);
  f("fixed-prediction-lr", o.fixed_prediction_lr,
    {.help = "the prediction head learns at the peak learning rate throughout, without schedule and warm-up"});
  visit(f, o.teacher);
}

class Byol : public Method {
 public:
  Byol(Encoder encoder, Encoder teacher, const ByolOptions& o)
      : Method(std::move(encoder)), teacher_(encoder_, std::move(teacher), o.teacher),
        prediction_(make_prediction(o.projection, o.prediction)), fixes_lr_(o.fixed_prediction_lr) {}

  void begin_step(const Moment& moment) override { teacher_.follow(moment); }
  // z0, z1, p0, p1: the teacher's projections, and the student's predictions for the other view.
  Tensors outputs(const Tensors& views) override {
    return {teacher_(views[0]), teacher_(views[1]), (*prediction_)(encode(views[0])), (*prediction_)(encode(views[1]))};
  }
  Tensor loss(const Tensors& y) override { return (negative_cosine(y[2], y[1]) + negative_cosine(y[3], y[0])) * 0.5; }
  std::optional<double> collapsed_loss(int64_t) const override { return -1; }
  bool fixes_prediction_lr() const override { return fixes_lr_; }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.child("prediction", *prediction_);
    teacher_.visit(v);
  }
  std::string str() const override { return "BYOL"; }

 private:
  Teacher teacher_;
  std::unique_ptr<Module> prediction_;
  bool fixes_lr_;
};

std::unique_ptr<Method> make_byol(const Backbone& backbone, const Settings& settings) {
  const auto& o = settings.as<ByolOptions>();
  const auto encoder = [&] { return Encoder{backbone.make(), make_head(backbone.features, o.projection)}; };
  Encoder student = encoder(), teacher = encoder();
  return std::make_unique<Byol>(std::move(student), std::move(teacher), o);
}

const RegisterMethod register_byol(
    {.name = "byol",
     .summary = "predicts the projection that a moving-average teacher makes of the other view",
     .settings = ByolOptions{},
     .make = make_byol,
     .each_image = true,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
