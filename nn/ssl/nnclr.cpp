#include <cmath>

#include "autograd/create.h"
#include "nn/loss/common.h"
#include "nn/loss/nt_xent.h"
#include "nn/ssl/method.h"
#include "nn/ssl/queue.h"

// Dwibedi et al., "With a little help from my friends: nearest-neighbor contrastive learning of visual
// representations", 2021.
namespace ringtape::nn {
namespace {

struct NnclrOptions {
  double temperature = 0.5;  // divisor of similarities
  HeadOptions projection{2048, 256, "all"}, prediction{4096, 256};
  int64_t queue = 4096;
  bool gather = false;
};
void visit(Fields& f, NnclrOptions& o) {
  f("temperature", o.temperature,
    {.help = "temperature by which similarities are divided", .unit = "X", .range = kAboveZero});
  visit_projection(f, o.projection);
  visit_prediction(f, o.prediction);
  f("queue", o.queue,
    {.help = "number of outputs of earlier batches that are searched for the nearest neighbour",
     .unit = "N",
     .range = kPositive});
  visit_gather(f, o.gather);
}

// For each row of z the most similar row of `bank` (rows of length 1); the first one if several are equal; the last row
// if z is NaN.
Tensor nearest(const Tensor& bank, const Tensor& z) {
  const NoGrad no_grad;
  const int64_t n = bank.dim(0);
  const Tensor similarity = linear(l2_normalize(cast(z, bank.dtype())), bank);
  const Tensor backwards = double(n) - arange(n, bank.dtype(), bank.device());
  const Tensor best =
      where(equal(similarity, max(similarity, {1}, true)), backwards, zeros({}, bank.dtype(), bank.device()));
  return index_select(bank, 0, cast(clamp(double(n) - max(best, {1}), 0, double(n - 1)), DType::i64));
}

class Nnclr : public Method {
 public:
  Nnclr(Encoder encoder, const NnclrOptions& o)
      : Method(std::move(encoder), o.gather), prediction_(make_prediction(o.projection, o.prediction)),
        queue_("nnclr", o.queue, o.projection.out), temperature_(o.temperature) {}

  // z0, z1, p0, p1: projections, and predictions from them.
  Tensors outputs(const Tensors& views) override {
    const Tensor z0 = encode(views[0]), z1 = encode(views[1]);
    return {z0.detach(), z1.detach(), (*prediction_)(z0), (*prediction_)(z1)};
  }
  // The positive of a prediction is the neighbour of the other view's projection.
  Tensor loss(const Tensors& y) override {
    const auto side = [&](const Tensor& z, const Tensor& p) {
      const Tensor q = wide(p);  // the neighbour keeps its digits, too
      return nt_xent_loss(cast(nearest(queue_.rows(0), z), q.dtype()), q, temperature_, gathering());
    };
    const Tensor out = (side(y[0], y[3]) + side(y[1], y[2])) * 0.5;
    queue_.push(group(), 0, y[1]);
    return out;
  }
  std::optional<double> collapsed_loss(int64_t n) const override {
    return std::log(double(2 * n * (gathering() ? ranks() : 1) - 1));
  }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.child("prediction", *prediction_);
    queue_.visit(v);
  }
  std::string str() const override {
    return concat("NNCLR(queue ", queue_.size(), ", temperature ", temperature_, ")");
  }

 private:
  std::unique_ptr<Module> prediction_;
  Queue queue_;
  double temperature_;
};

void check_nnclr(const Settings& settings, const BatchPlan& batch) {
  check_queue("nnclr", settings.as<NnclrOptions>().queue, batch.images);
}

const RegisterMethod register_nnclr(
    {.name = "nnclr",
     .summary = "like simclr, but the positive is the earlier output that is nearest to the other view",
     .settings = NnclrOptions{},
     .make = make_with_encoder<Nnclr, NnclrOptions>,
     .check = check_nnclr,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
