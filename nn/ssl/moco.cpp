#include <cmath>
#include <map>

#include "autograd/create.h"
#include "comm/parallel/shuffle.h"
#include "core/runtime.h"
#include "nn/batch_norm.h"
#include "nn/loss/memory_bank.h"
#include "nn/ssl/queue.h"
#include "nn/ssl/teacher.h"

// He et al., "Momentum contrast for unsupervised visual representation learning", 2020, with the symmetric loss of
// lightly's benchmark.
namespace ringtape::nn {
namespace {

struct MocoOptions {
  double temperature = 0.1;
  HeadOptions projection{512, 128, "none"};
  TeacherOptions teacher;
  int64_t queue = 4096;
  bool queue_per_view = false;   // as in solo-learn
  bool enqueue_between = false;  // as in lightly
  int64_t bn_splits = 1;
};
void visit(Fields& f, MocoOptions& o) {
  f("temperature", o.temperature,
    {.help = "temperature by which similarities are divided", .unit = "X", .range = kAboveZero, .unset = "0"});
  visit_projection(f, o.projection);
  visit(f, o.teacher);
  f("queue", o.queue,
    {.help = "number of keys from earlier batches that are negatives", .unit = "N", .range = kPositive, .unset = "-1"});
  f("queue-per-view", o.queue_per_view, {.help = "separate queues for the two views, each of the size --queue"});
  f("enqueue-between", o.enqueue_between,
    {.help = "use the keys of the first half of the loss as negatives in the second half, as lightly does"});
  f("bn-splits", o.bn_splits,
    {.help = "number of parts of a batch that batch normalisation treats separately; always 1 with --sync-bn",
     .unit = "N",
     .range = kPositive});
}

// Random orders of the rows of two views, and those that put them back. They stay where they are on the device: a
// recorded step reads them there.
class RowOrders {
 public:
  void begin_step(uint64_t seed) {
    seed_ = seed;
    for (const auto& [n, place] : places_) {
      const std::vector<int64_t> now = numbers(n);
      runtime(place.device()).copy(View(place).data, place.device(), now.data(), Device{}, now.size() * sizeof now[0]);
    }
  }
  Tensor shuffle(const Tensor& x, int64_t view) { return ordered(x, 2 * view); }
  Tensor unshuffle(const Tensor& x, int64_t view) { return ordered(x, 2 * view + 1); }

 private:
  std::vector<int64_t> numbers(int64_t n) const {
    std::vector<int64_t> out;
    for (const uint64_t view : {0, 1}) {
      const std::vector<int64_t> order = permutation(n, seed_ + view, Stream::rows, 0);
      std::vector<int64_t> back(order.size());
      for (size_t i = 0; i < order.size(); ++i) back[size_t(order[i])] = int64_t(i);
      for (const auto& rows : {order, back}) out.insert(out.end(), rows.begin(), rows.end());
    }
    return out;
  }
  Tensor ordered(const Tensor& x, int64_t which) {
    const int64_t n = x.dim(0);
    Tensor& place = places_[n];
    if (!place.defined() || place.device() != x.device()) place = from_host(numbers(n), {4, n}, x.device());
    return index_select(x, 0, place.window({n}, {1}, which * n));
  }

  uint64_t seed_ = 0;
  std::map<int64_t, Tensor> places_;  // by the number of rows
};

class Moco : public Method {
 public:
  Moco(Encoder encoder, Encoder teacher, const MocoOptions& o)
      : Method(std::move(encoder)), teacher_(encoder_, std::move(teacher), o.teacher),
        queue_("moco", o.queue, o.projection.out, o.queue_per_view), temperature_(o.temperature),
        enqueue_between_(o.enqueue_between), splits_(o.bn_splits) {}

  void begin_step(const Moment& moment) override {
    teacher_.follow(moment);
    seed_ = moment.seed ^ (uint64_t(moment.step) + 1) << 20;
    orders_.begin_step(seed_);
  }
  // q0, q1, k0, k1: the student's queries and the teacher's keys.
  Tensors outputs(const Tensors& views) override {
    return {encode(views[0]), encode(views[1]), key(views[0], 0), key(views[1], 1)};
  }
  Tensor loss(const Tensors& y) override {
    const Tensor first = memory_bank_loss(y[0], y[3], queue_.rows(1), temperature_);
    if (enqueue_between_) queue_.push(group(), 1, y[3]);
    const Tensor second = memory_bank_loss(y[1], y[2], queue_.rows(0), temperature_);
    if (!enqueue_between_) queue_.push(group(), 1, y[3]);
    queue_.push(group(), 0, y[2]);
    return (first + second) * 0.5;
  }
  std::optional<double> collapsed_loss(int64_t) const override { return std::log(double(queue_.size() + 1)); }
  void visit(Visitor& v) override {
    Method::visit(v);
    teacher_.visit(v);
    queue_.visit(v);
  }
  int64_t form() const override { return group() ? -1 : 0; }  // the host orders the rows of several ranks in each step
  std::string str() const override { return concat("MoCo(queue ", queue_.size(), ", temperature ", temperature_, ")"); }

 private:
  // Rows pass the teacher in shuffled order; otherwise batch statistics could reveal which key matches a query.
  Tensor key(const Tensor& view, int64_t which) {
    const NoGrad no_grad;
    if (group()) {
      const std::vector<int64_t> rows(size_t(ranks()), view.dim(0));
      const uint64_t seed = seed_ + uint64_t(which);
      return comm::unshuffle(*group(), teacher_(comm::shuffle(*group(), view, seed, rows)), seed, rows);
    }
    if (splits_ == 1) return teacher_(view);
    return orders_.unshuffle(teacher_(orders_.shuffle(view, which)), which);
  }

  Teacher teacher_;
  Queue queue_;
  double temperature_;
  bool enqueue_between_;
  int64_t splits_;
  uint64_t seed_ = 0;  // of the order of rows
  RowOrders orders_;   // of a rank alone
};

// The number of parts; 1 with SyncBatchNorm, which normalises the whole batch at once.
int64_t splits(const MocoOptions& o, bool sync_bn) { return sync_bn ? 1 : o.bn_splits; }

void check_moco(const Settings& settings, const BatchPlan& batch) {
  const auto& o = settings.as<MocoOptions>();
  check_queue("moco", o.queue, batch.images);
  const int64_t each = batch.images / batch.devices;
  RT_CHECK_AS(UsageError, each % splits(o, batch.sync_bn) == 0, "--bn-splits ", o.bn_splits, ": expected a divisor of ",
              each, ", the number of images per device in a batch");
}

std::unique_ptr<Method> make_moco(const Backbone& backbone, const Settings& settings) {
  auto o = settings.as<MocoOptions>();
  o.bn_splits = splits(o, backbone.sync_bn);
  const auto encoder = [&] {
    Encoder out{backbone.make(), make_head(backbone.features, o.projection)};
    split_batch_norm(*out.backbone, o.bn_splits);
    return out;
  };
  Encoder student = encoder(), teacher = encoder();
  return std::make_unique<Moco>(std::move(student), std::move(teacher), o);
}

const RegisterMethod register_moco(
    {.name = "moco",
     .summary = "matches each view to the other view's key, from a moving-average teacher, among keys of earlier "
                "batches",
     .settings = MocoOptions{},
     .make = make_moco,
     .check = check_moco,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
