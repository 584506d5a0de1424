#include <cmath>
#include <optional>

#include "autograd/inplace.h"
#include "nn/init.h"
#include "nn/loss/common.h"
#include "nn/loss/swav.h"
#include "nn/ssl/method.h"
#include "nn/ssl/queue.h"

// Caron et al., "Unsupervised learning of visual features by contrasting cluster assignments", 2020.
namespace ringtape::nn {
namespace {

constexpr HeadDefaults kProjection{512, 128, HeadNorm::hidden};
constexpr size_t kCoded = 2;  // of the crops, the first have codes

class Swav : public Method {
 public:
  Swav(Encoder encoder, int64_t width, const MethodOptions& o)
      : Method(std::move(encoder)), prototypes_(uniform_fan_in({o.prototypes, width}, width)), sinkhorn_{o.epsilon, int(o.iterations)},
        temperature_(o.temperature > 0 ? o.temperature : 0.1), freeze_epochs_(o.freeze_epochs), queue_epoch_(o.queue_epoch) {
    if (o.queue > 0) queue_.emplace("swav", o.queue, width, o.queue_per_view);
  }

  void begin_step(const Moment& moment) override {
    frozen_ = moment.epoch < freeze_epochs_;
    balances_queue_ = moment.epoch >= queue_epoch_;
    const NoGrad no_grad;
    copy_(prototypes_, l2_normalize(prototypes_));
  }
  Tensors outputs(const Tensors& views) override {
    Tensors out;
    for (const Tensor& view : views) out.push_back(encode(view));
    return out;
  }
  Tensor loss(const Tensors& z) override {
    Tensors scores, codes;
    for (const Tensor& crop : z) scores.push_back(linear(l2_normalize(wide(crop)), frozen_ ? prototypes_.detach() : prototypes_));
    for (size_t i = 0; i < kCoded; ++i) codes.push_back(sinkhorn(scores[i], sinkhorn_, gathering(), queued(i)));
    if (queue_)
      for (size_t i = 0; i < kCoded; ++i) queue_->push(group(), i, z[i]);
    return swav_loss(scores, codes, temperature_);
  }
  std::optional<double> collapsed_loss(int64_t) const override { return std::log(double(prototypes_.dim(0))); }
  void check_batch(int64_t n) const override { if (queue_) queue_->check_batch(n); }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.parameter("prototypes", prototypes_);
    if (queue_) queue_->visit(v);
  }
  std::string str() const override { return concat("SwAV(prototypes ", prototypes_.dim(0), ", temperature ", temperature_, ")"); }

 private:
  // The scores of earlier rows, which a view's codes are balanced with; undefined: none.
  Tensor queued(size_t view) const {
    if (!queue_ || !balances_queue_) return {};
    const NoGrad no_grad;
    return linear(queue_->rows(view), prototypes_);
  }

  Tensor prototypes_;  // (K, D), rows of length 1
  SinkhornOptions sinkhorn_;
  double temperature_;
  int64_t freeze_epochs_, queue_epoch_;
  std::optional<Queue> queue_;
  bool frozen_ = false, balances_queue_ = false;
};

std::unique_ptr<Method> make(const MakeModule& backbone, int64_t features, const MethodOptions& o) {
  Encoder encoder{backbone(), make_head(features, o.projection, kProjection)};
  return std::make_unique<Swav>(std::move(encoder), head_width(o.projection, kProjection), o);
}

const RegisterMethod registered({"swav", "predicts which prototype the other view belongs to, of which all get equal parts", make});

}  // namespace
}  // namespace ringtape::nn
