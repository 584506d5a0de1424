#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/parallel/parallel_apply.h"
#include "comm/process_group.h"
#include "nn/module.h"

namespace ringtape::nn {

// A model on several devices of this process, like PyTorch's nn.DataParallel. forward() divides the rows of its inputs
// among replicas of the model, which compute in parallel, and gathers their results on the first device, where the loss
// is computed. backward() gives the replicas their parts of its gradient, and sums the gradients of the parameters on
// the first device. Replica 0's buffers are the model's own: running statistics are those of its rows only, unless
// batch normalisation is synchronised.
class DataParallel {
 public:
  struct Options {
    // Parameters and buffers stay with the replicas and are sent again only after they have changed; else with every
    // forward(), as in the textbook.
    bool persistent = false;
    bool synchronize_batch_norm = false;  // over the rows of all replicas
    bool deterministic = false;           // the same bits for any transport; see comm::ProcessGroup
  };
  // `model` is on devices[0] and must outlive this; `make` creates another one with the same parameters, buffers and
  // modules. Throws UsageError if it does not, or without devices.
  DataParallel(Module& model, const std::function<std::unique_ptr<Module>()>& make, comm::Devices devices,
               Options options);
  DataParallel(Module& model, const std::function<std::unique_ptr<Module>()>& make, comm::Devices devices)
      : DataParallel(model, make, std::move(devices), Options()) {}
  ~DataParallel();

  // The model's outputs (N, ...) for x (N, ...), on the first device.
  Tensor operator()(const Tensor& x);

  // The same for any function of a replica and its rows of the inputs, called on the replica's thread. Each of its
  // results is gathered on the first device: rows are concatenated; results of shape () form a vector with one element
  // per replica, which the caller reduces. Gradients go through the first result only; the others are detached. A
  // replica without rows is skipped unless batch normalisation is synchronised. Exceptions of f are rethrown, with the
  // replica's name.
  using ReplicaFn = std::function<Tensors(Module& replica, const Tensors& rows)>;
  Tensors forward(const Tensors& inputs, const ReplicaFn& f);

  // Transfers between devices so far.
  struct Sent {
    int64_t transfers = 0, bytes = 0;
  };
  struct Traffic {
    Sent inputs, parameters, outputs, gradients;
    int64_t bytes() const { return inputs.bytes + parameters.bytes + outputs.bytes + gradients.bytes; }
  };
  const Traffic& traffic() const { return traffic_; }
  const comm::Devices& devices() const { return devices_; }

 private:
  struct Replica;
  using Results = std::vector<std::optional<Tensors>>;  // of each replica; none if it takes no part
  void replicate();
  std::vector<Tensors> scatter(const Tensors& inputs);
  Results compute(const std::vector<Tensors>& inputs, const ReplicaFn& f);
  Tensors gather(const Results& results);
  Tensors gradients(const Results& results, const Tensor& dy);
  Tensors reduced_gradients(const Results& results);

  Module& model_;
  const comm::Devices devices_;
  const Options options_;
  std::vector<Replica> replicas_;
  Traffic traffic_;
};

}  // namespace ringtape::nn
