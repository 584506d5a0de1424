#include "nn/loss/swav.h"

#include <cmath>
#include <optional>

#include "autograd/inplace.h"
#include "nn/init.h"
#include "nn/loss/common.h"
#include "nn/ssl/method.h"
#include "nn/ssl/queue.h"

// Caron et al., "Unsupervised learning of visual features by contrasting cluster assignments", 2020.
namespace ringtape::nn {
namespace {

struct SwavOptions {
  double temperature = 0.1;
  HeadOptions projection{512, 128};
  int64_t prototypes = 512;
  int64_t freeze_epochs = 0;  // epochs in which the prototypes are constant
  double epsilon = 0.05;      // entropy of Sinkhorn's codes
  int64_t iterations = 3;
  int64_t queue = 0;
  bool queue_per_view = false;  // as in solo-learn
  int64_t queue_epoch = 0;      // the first epoch that uses the queue
  bool gather = false;
};
void visit(Fields& f, SwavOptions& o) {
  f("temperature", o.temperature,
    {.help = "temperature by which similarities are divided", .unit = "X", .range = kAboveZero, .unset = "0"});
  visit_projection(f, o.projection);
  f("prototypes", o.prototypes, {.help = "number of prototypes", .unit = "N", .range = kPositive});
  f("freeze-prototypes", o.freeze_epochs,
    {.help = "number of first epochs in which the prototypes are not trained", .unit = "N", .range = kCount});
  f("sinkhorn-epsilon", o.epsilon,
    {.help = "entropy of the Sinkhorn codes; smaller is sharper", .unit = "X", .range = {1e-6, kMaxCount}});
  f("sinkhorn-iterations", o.iterations,
    {.help = "Sinkhorn iterations that balance the codes", .unit = "N", .range = kPositive});
  f("queue", o.queue,
    {.help = "number of outputs of earlier batches that take part in balancing the codes; 0: none",
     .unit = "N",
     .range = kCount,
     .unset = "-1"});
  f("queue-per-view", o.queue_per_view, {.help = "separate queues for the two views, each of the size --queue"});
  f("queue-epoch", o.queue_epoch, {.help = "epochs before the queue is used", .unit = "N", .range = kCount});
  visit_gather(f, o.gather);
}

constexpr size_t kCoded = 2;  // the first crops, which have codes

class Swav : public Method {
 public:
  Swav(Encoder encoder, const SwavOptions& o)
      : Method(std::move(encoder), o.gather),
        prototypes_(uniform_fan_in({o.prototypes, o.projection.out}, o.projection.out)), sinkhorn_{o.epsilon,
                                                                                                   int(o.iterations)},
        temperature_(o.temperature), freeze_epochs_(o.freeze_epochs), queue_epoch_(o.queue_epoch) {
    if (o.queue > 0) queue_.emplace("swav", o.queue, o.projection.out, o.queue_per_view);
  }

  void begin_step(const Moment& moment) override {
    frozen_ = moment.epoch < freeze_epochs_;
    balances_queue_ = moment.epoch >= queue_epoch_;
    moment.write_weights([&] {
      const NoGrad no_grad;
      l2_normalize_(prototypes_);
    });
  }
  int64_t form() const override { return (frozen_ ? 1 : 0) + (balances_queue_ ? 2 : 0); }
  Tensors outputs(const Tensors& views) override {
    Tensors out;
    for (const Tensor& view : views) out.push_back(encode(view));
    return out;
  }
  Tensor loss(const Tensors& z) override {
    Tensors scores, codes;
    for (const Tensor& crop : z)
      scores.push_back(linear(l2_normalize(wide(crop)), frozen_ ? prototypes_.detach() : prototypes_));
    for (size_t i = 0; i < kCoded; ++i) codes.push_back(sinkhorn(scores[i], sinkhorn_, gathering(), queued(i)));
    if (queue_)
      for (size_t i = 0; i < kCoded; ++i) queue_->push(group(), i, z[i]);
    return swav_loss(scores, codes, temperature_);
  }
  std::optional<double> collapsed_loss(int64_t) const override { return std::log(double(prototypes_.dim(0))); }
  void visit(Visitor& v) override {
    Method::visit(v);
    v.parameter("prototypes", prototypes_);
    if (queue_) queue_->visit(v);
  }
  std::string str() const override {
    return concat("SwAV(prototypes ", prototypes_.dim(0), ", temperature ", temperature_, ")");
  }

 private:
  // The scores of earlier rows, which take part in balancing a view's codes; undefined: none.
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

void check_swav(const Settings& settings, const BatchPlan& batch) {
  const auto& o = settings.as<SwavOptions>();
  if (o.queue > 0) check_queue("swav", o.queue, batch.images);
}

const RegisterMethod register_swav(
    {.name = "swav",
     .summary = "predicts the prototypes of the other view; all prototypes get equal shares of the batch",
     .settings = SwavOptions{},
     .make = make_with_encoder<Swav, SwavOptions>,
     .any_views = true,
     .check = check_swav,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
