#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings.h"
#include "nn/data_parallel.h"
#include "nn/linear.h"
#include "nn/ssl/heads.h"

namespace ringtape::nn {

// The progress of a run.
struct Moment {
  int64_t step = 0, steps = 1;  // steps so far, and in total
  int64_t epoch = 0;            // completed epochs
  uint64_t seed = 0;
  // Calls f, which writes weights, on one of the ranks if they have the weights in common; all ranks call it. Empty:
  // each rank has its own.
  std::function<void(const std::function<void()>& f)> on_weights = {};

  void write_weights(const std::function<void()>& f) const { on_weights ? on_weights(f) : f(); }
};

using MakeModule = std::function<std::unique_ptr<Module>()>;

// The building blocks of a method.
struct Backbone {
  MakeModule make;       // creates one with random weights: images (N, H, W, C) -> features (N, F)
  int64_t features;      // F
  bool sync_bn = false;  // batch normalisation will use the samples of all ranks or devices
};

// A backbone, images (N, H, W, C) -> features (N, F), and a projection head.
struct Encoder {
  std::unique_ptr<Module> backbone, projection;
  Tensor operator()(const Tensor& x) const { return (*projection)((*backbone)(x)); }
};

// Self-supervised learning of a backbone: a network that computes outputs for several random views of the same images,
// and a loss of these outputs. As a module it acts as its backbone. Its state besides parameters, such as a teacher's
// weights or a queue of earlier outputs, consists of buffers, so that checkpoints contain it and replicas receive it.
class Method : public Module {
 public:
  explicit Method(Encoder encoder, bool gathers = false) : encoder_(std::move(encoder)), gathers_(gathers) {}

  Tensor forward(const Tensor& x) override { return (*encoder_.backbone)(x); }  // features
  Module& backbone() { return *encoder_.backbone; }
  void visit(Visitor& v) override {
    v.child("backbone", *encoder_.backbone);
    v.child("projection", *encoder_.projection);
    if (probe_) v.child("probe", *probe_);
  }

  // Adds a linear layer on the features of the first view that learns the labels. Its gradient does not reach the
  // backbone. It is trained with the rest; its logits are the last element of step_outputs().
  void add_probe(int64_t features, int64_t classes) { probe_ = std::make_unique<Linear>(features, classes); }
  bool has_probe() const { return probe_ != nullptr; }
  Tensor classify(const Tensor& x) { return (*probe_)((*this)(x)); }  // images -> logits

  // outputs() of inputs(), and the probe's logits if there is a probe.
  Tensors step_outputs(const Tensors& inputs);

  // The views of a step, and what else outputs() needs for each row, such as random numbers.
  virtual Tensors inputs(const Tensors& views) { return views; }
  // The network's part of a step: views (n, H, W, C), where row i of each shows the same image, as inputs() returns
  // them, -> outputs, each (n, D). Views are processed one by one, so that batch normalisation has separate statistics
  // for each.
  virtual Tensors outputs(const Tensors& views) = 0;
  // The loss (), f32 (f64 for f64), of the outputs of a batch; advances queues. Call it once per step.
  virtual Tensor loss(const Tensors& outputs) = 0;

  // Called before a step's outputs: updates everything that follows a schedule; weights by Moment::write_weights().
  virtual void begin_step(const Moment&) {}
  // The loss for outputs that do not depend on the image, with n images per rank: a run whose loss stays there has
  // collapsed.
  virtual std::optional<double> collapsed_loss(int64_t /*n*/) const { return {}; }
  // The output whose rows should differ between images; see spread().
  virtual Tensor watched(const Tensors& outputs) const { return outputs[0]; }

  // From now on, a batch is the samples of all ranks of the group: queues get the outputs of all ranks, and so does a
  // loss that gathers. All ranks must have equal numbers of rows. Throws UsageError if the loss gathers and the group
  // has one rank.
  void distribute(comm::ProcessGroup& group);
  // Whether the prediction head, the child "prediction", learns at the peak rate throughout, without schedule and
  // warm-up.
  virtual bool fixes_prediction_lr() const { return false; }

 protected:
  comm::ProcessGroup* group() const { return group_; }
  comm::ProcessGroup* gathering() const { return gathers_ ? group_ : nullptr; }
  int ranks() const { return group_ ? group_->size() : 1; }

  Tensor encode(const Tensor& view);  // by the trained encoder, for outputs()
  void probe(
      const Tensor& features);  // what the probe learns from, if outputs() does not call encode(): the first ones

  const Encoder encoder_;

 private:
  const bool gathers_;  // the loss uses the outputs of all ranks
  std::unique_ptr<Linear> probe_;
  Tensor probed_;                        // features of the step's first view
  comm::ProcessGroup* group_ = nullptr;  // null: one rank
};

// step_outputs() by replicas of a method, on the first device.
Tensors outputs_of(DataParallel& replicas, const Tensors& inputs);

// The option of methods whose loss can use the outputs of all ranks.
void visit_gather(Fields& f, bool& gather);

// How the batches of a run are divided.
struct BatchPlan {
  int64_t images = 0;              // total over all ranks
  int64_t ranks = 1, devices = 1;  // totals; each device has an equal part of the images
  bool sync_bn = false;
};

// A method that the command line knows by name. Registered at the end of its file; it is listed nowhere else.
struct MethodEntry {
  const char* name;
  const char* summary;  // one line
  Settings settings = {};
  std::unique_ptr<Method> (*make)(const Backbone& backbone, const Settings& settings);
  bool any_views = false;   // accepts more than two views of an image, and small ones
  int64_t least_views = 2;  // of an image
  bool each_image = false;  // compares the images of a batch only by batch normalisation
  bool apart = false;       // does not compare them at all
  // Throws UsageError if these settings cannot learn from such batches; null: they always can.
  void (*check)(const Settings& settings, const BatchPlan& batch) = nullptr;
  bool repeats = false;         // its steps do the same work as long as their shapes and Module::form() stay
  const char* model = nullptr;  // the only kind of backbone that it takes, by an example; null: any

  bool gathers() const;  // whether it has the option of visit_gather()
  // Everything about batches that can be checked before data and network exist. Throws UsageError.
  void check_batches(const Settings& settings, const BatchPlan& batch) const;
};
std::span<const MethodEntry> methods();                 // those of lightly's table first, the others by name
const MethodEntry& find_method(std::string_view name);  // throws UsageError with the nearest name

// `make` of a method that is constructed from its encoder and its settings, which have its projection head.
template <class Made, class Options>
std::unique_ptr<Method> make_with_encoder(const Backbone& backbone, const Settings& settings) {
  const auto& o = settings.as<Options>();
  return std::make_unique<Made>(Encoder{backbone.make(), make_head(backbone.features, o.projection)}, o);
}

struct RegisterMethod {
  explicit RegisterMethod(const MethodEntry& entry);
};

}  // namespace ringtape::nn
