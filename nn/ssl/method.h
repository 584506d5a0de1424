#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/data_parallel.h"
#include "nn/linear.h"
#include "nn/ssl/heads.h"

namespace ringtape::nn {

// What can be said about a self-supervised method; each reads what concerns it. Widths of zero, a temperature of zero and a negative queue
// mean what the method has by itself.
struct MethodOptions {
  HeadOptions projection;
  HeadOptions prediction;       // of simsiam and byol
  double temperature = 0;       // of the similarities: moco, simclr, swav
  double momentum = 0.99;       // moco, byol: of the teacher's weights, kept a step
  double final_momentum = -1;   // where it ends, along a cosine; negative: it stays
  int64_t queue = -1;           // moco: keys kept as negatives, 4096; swav: rows kept to balance codes with, none
  bool queue_per_view = false;  // moco, swav: each view has a queue of its own, as solo-learn has it
  bool enqueue_between = false; // moco: the keys of one half of the loss are negatives of the other, as lightly has it
  int64_t bn_splits = 1;        // moco: parts of a batch normalised apart
  double lambda = 5e-3;         // barlow_twins: weight of what is off the diagonal
  double loss_scale = 1;        // barlow_twins
  bool unbiased = false;        // barlow_twins: standardises by n - 1, and without an epsilon
  bool exact = false;           // barlow_twins: by the statistics of all ranks
  int64_t prototypes = 512;     // swav
  double epsilon = 0.05;        // swav: of Sinkhorn's codes
  int64_t iterations = 3;
  int64_t freeze_epochs = 0;    // swav: in which the prototypes stay as they are
  int64_t queue_epoch = 0;      // swav: the first in which the queue counts
};

// Where a training is.
struct Moment {
  int64_t step = 0, steps = 1;  // taken so far, and in all
  int64_t epoch = 0;            // whole ones
  uint64_t seed = 0;
};

using MakeModule = std::function<std::unique_ptr<Module>()>;

// A backbone, images (N, H, W, C) -> features (N, F), and a head on them.
struct Encoder {
  std::unique_ptr<Module> backbone, projection;
  Tensor operator()(const Tensor& x) const { return (*projection)((*backbone)(x)); }
};

// Self-supervised learning of a backbone: a network that makes outputs of several random views of the same images, and a loss of these. As
// a module it is its backbone. What it keeps besides parameters, a teacher's weights or a queue of earlier outputs, are buffers, so that
// checkpoints have them and replicas get them.
class Method : public Module {
 public:
  explicit Method(Encoder encoder) : encoder_(std::move(encoder)) {}

  Tensor forward(const Tensor& x) override { return (*encoder_.backbone)(x); }  // features
  Module& backbone() { return *encoder_.backbone; }
  void visit(Visitor& v) override {
    v.child("backbone", *encoder_.backbone);
    v.child("projection", *encoder_.projection);
    if (probe_) v.child("probe", *probe_);
  }

  // A linear layer on the features of the first view that learns the labels while the backbone learns without: what reaches it goes no
  // further back. It is trained as the rest is; step_outputs() has its logits at last.
  void add_probe(int64_t features, int64_t classes) { probe_ = std::make_unique<Linear>(features, classes); }
  bool has_probe() const { return probe_ != nullptr; }
  Tensor classify(const Tensor& x) { return (*probe_)((*this)(x)); }  // images -> logits

  // outputs() of a step, and the probe's logits if there is one.
  Tensors step_outputs(const Tensors& views);

  // The network's part of a step: of views, each (n, H, W, C) with row i of the same image, outputs, each (n, D). Views go through one by
  // one, so that batch normalisation has statistics of each.
  virtual Tensors outputs(const Tensors& views) = 0;
  // The loss (), f32 (f64 of f64), of the outputs of a batch; advances queues. To be called once a step.
  virtual Tensor loss(const Tensors& outputs) = 0;

  // Before a step's outputs: what follows a schedule.
  virtual void begin_step(const Moment&) {}
  // What `loss` is of outputs that do not depend on the image, for n images a rank: a training that stays there has collapsed.
  virtual std::optional<double> collapsed_loss(int64_t /*n*/) const { return {}; }
  // Which of the outputs' rows are to differ from image to image; see spread().
  virtual Tensor watched(const Tensors& outputs) const { return outputs[0]; }

  // From now on the batch is what all ranks of the group have: queues take the outputs of all. `gather`: losses, too, compare with the
  // outputs of all ranks. Each rank has as many rows as any other.
  void distribute(comm::ProcessGroup* group, bool gather) { group_ = group, gathers_ = gather; }
  virtual bool can_gather() const { return true; }  // whether that makes a difference
  // Throws UsageError for batches of so many images, of all ranks together, that it could not learn from.
  virtual void check_batch(int64_t /*n*/) const {}

 protected:
  comm::ProcessGroup* group() const { return group_; }
  comm::ProcessGroup* gathering() const { return gathers_ ? group_ : nullptr; }
  int ranks() const { return group_ ? group_->size() : 1; }

  Tensor encode(const Tensor& view);  // by the encoder that is trained, for outputs()

  const Encoder encoder_;

 private:
  std::unique_ptr<Linear> probe_;
  Tensor probed_;  // features of the step's first view
  comm::ProcessGroup* group_ = nullptr;
  bool gathers_ = false;
};

// The outputs of a batch that replicas of a method make, on the first device.
Tensors outputs_of(DataParallel& replicas, const Tensors& views);

// A method the command line knows by name. Registered at the foot of its file; nothing else lists it.
struct MethodEntry {
  const char* name;
  const char* summary;  // one line
  std::unique_ptr<Method> (*make)(const MakeModule& backbone, int64_t features, const MethodOptions& options);
};
std::vector<MethodEntry>& methods();  // in no particular order

struct RegisterMethod {
  explicit RegisterMethod(const MethodEntry& entry) { methods().push_back(entry); }
};

}  // namespace ringtape::nn
