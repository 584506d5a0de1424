#include "nn/loss/dino.h"

#include <algorithm>
#include <cmath>

#include "autograd/inplace.h"
#include "nn/init.h"
#include "nn/loss/common.h"
#include "nn/loss/swav.h"
#include "nn/ssl/teacher.h"

// Caron et al., "Emerging properties in self-supervised vision transformers", 2021.
namespace ringtape::nn {
namespace {

struct DinoOptions {
  HeadOptions projection{.hidden = 2048, .out = 256, .norm = "none", .layers = 3, .bias = true, .transformer = true};
  int64_t prototypes = 2048;
  int64_t freeze_epochs = 1;  // epochs in which the prototypes are constant
  double temperature = 0.1;
  double teacher_temperature = 0.04, first_teacher_temperature = 0.04;
  int64_t teacher_warmup = 30;  // epochs until the teacher's temperature is reached
  double center_momentum = 0.9;
  TeacherOptions teacher{.momentum = 0.996, .final_momentum = 1};
};
void visit(Fields& f, DinoOptions& o) {
  visit_projection(f, o.projection);
  f("prototypes", o.prototypes, {.help = "number of prototypes", .unit = "N", .range = kPositive});
  f("freeze-prototypes", o.freeze_epochs,
    {.help = "number of first epochs in which the prototypes are not trained", .unit = "N", .range = kCount});
  f("temperature", o.temperature,
    {.help = "temperature by which the student's scores are divided", .unit = "X", .range = kAboveZero, .unset = "0"});
  f("teacher-temperature", o.teacher_temperature,
    {.help = "temperature by which the teacher's scores are divided; lower is sharper",
     .unit = "X",
     .range = kAboveZero});
  f("teacher-temperature-start", o.first_teacher_temperature,
    {.help = "its value in the first epoch, from which it grows linearly", .unit = "X", .range = kAboveZero});
  f("teacher-warmup-epochs", o.teacher_warmup,
    {.help = "epochs until --teacher-temperature is reached", .unit = "N", .range = kCount});
  f("center-momentum", o.center_momentum,
    {.help = "fraction of the centre of the teacher's scores that remains after a step",
     .unit = "X",
     .range = kProbability});
  visit(f, o.teacher);
}

class Dino : public Method {
 public:
  Dino(Encoder student, Encoder teacher, const DinoOptions& o)
      : Method(std::move(student)), options_(o), prototypes_(small_normal({o.prototypes, o.projection.out})),
        teacher_(encoder_, std::move(teacher), o.teacher, {{&taught_prototypes_, &prototypes_}}),
        center_(zeros({o.prototypes})) {}

  void begin_step(const Moment& moment) override {
    epoch_ = moment.epoch;
    teacher_.follow(moment);
  }
  int64_t form() const override {
    const bool warms = options_.first_teacher_temperature != options_.teacher_temperature;
    return (frozen() ? 1 : 0) + 2 * (warms ? std::min(epoch_, options_.teacher_warmup) : 0);
  }
  // The teacher's projections of the first crops, then the student's of all.
  Tensors outputs(const Tensors& views) override {
    Tensors out;
    for (size_t i = 0; i < kTaught; ++i) out.push_back(teacher_(views[i]));
    for (const Tensor& view : views) out.push_back(encode(view));
    return out;
  }
  Tensor loss(const Tensors& z) override {
    Tensors taught, codes, learnt;
    for (size_t i = 0; i < kTaught; ++i) {
      taught.push_back(scores(z[i], taught_prototypes_));
      codes.push_back(dino_codes(taught[i], center_, teacher_temperature()));
    }
    for (size_t i = kTaught; i < z.size(); ++i)
      learnt.push_back(scores(z[i], frozen() ? prototypes_.detach() : prototypes_));
    follow(taught);
    return swav_loss(learnt, codes, options_.temperature);
  }
  std::optional<double> collapsed_loss(int64_t) const override { return std::log(double(options_.prototypes)); }
  Tensor watched(const Tensors& z) const override { return z[kTaught]; }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.parameter("prototypes", prototypes_);
    v.buffer("teacher.prototypes", taught_prototypes_);
    teacher_.visit(v);
    v.buffer("center", center_);
  }
  std::string str() const override {
    return concat("DINO(prototypes ", options_.prototypes, ", temperature ", options_.temperature, ")");
  }

 private:
  bool frozen() const { return epoch_ < options_.freeze_epochs; }
  double teacher_temperature() const {
    const double from = options_.first_teacher_temperature, to = options_.teacher_temperature;
    return epoch_ < options_.teacher_warmup ? from + (to - from) * double(epoch_) / double(options_.teacher_warmup)
                                            : to;
  }
  // (n, K): the cosine of each projection (n, D) with each prototype.
  static Tensor scores(const Tensor& z, const Tensor& prototypes) {
    return linear(l2_normalize(wide(z)), l2_normalize(prototypes));
  }
  // The centre of all ranks' rows.
  void follow(const Tensors& taught) {
    const NoGrad no_grad;
    const Autocast none(DType::f32);
    const Tensor own = mean(concat(taught), {0});
    average_({center_}, {sum_over(group(), own) / double(ranks())}, options_.center_momentum);
  }

  static constexpr size_t kTaught = 2;  // the first crops, which the teacher sees

  DinoOptions options_;
  Tensor prototypes_, taught_prototypes_;  // (K, D)
  Teacher teacher_;
  Tensor center_;  // (K)
  int64_t epoch_ = 0;
};

std::unique_ptr<Method> make_dino(const Backbone& backbone, const Settings& settings) {
  const auto& o = settings.as<DinoOptions>();
  const auto encoder = [&] { return Encoder{backbone.make(), make_head(backbone.features, o.projection)}; };
  Encoder student = encoder(), teacher = encoder();
  return std::make_unique<Dino>(std::move(student), std::move(teacher), o);
}

const RegisterMethod register_dino(
    {.name = "dino",
     .summary = "scores of all crops against prototypes match a moving-average teacher's, centred and sharpened",
     .settings = DinoOptions{},
     .make = make_dino,
     .any_views = true,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
