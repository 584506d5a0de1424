#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/parallel_apply.h"
#include "comm/process_group.h"
#include "nn/module.h"

namespace ringtape::nn {

// A model on several devices of this process at once, as PyTorch's nn.DataParallel: each forward() deals the rows of its inputs to replicas
// of the model, which compute beside each other, and brings what comes out to the first device, where the loss is taken; backward() hands
// them their parts of its gradient, and adds up the gradients of the parameters there. Of buffers, replica 0's are the model's own: running
// statistics are of its rows alone, unless batch normalisation is synchronised.
class DataParallel {
 public:
  struct Options {
    // Parameters and buffers stay with the replicas, and travel again only once they have been written to; else with every forward(), as
    // the textbook has it.
    bool persistent = false;
    bool synchronize_batch_norm = false;  // over the rows of all replicas
    bool deterministic = false;           // the same bits for any transport; see comm::ProcessGroup
  };
  // `model` is on devices[0] and outlives this; `make` makes another with the same parameters, buffers and modules. Throws UsageError where
  // it does not, or without devices.
  DataParallel(Module& model, const std::function<std::unique_ptr<Module>()>& make, comm::Devices devices, Options options);
  DataParallel(Module& model, const std::function<std::unique_ptr<Module>()>& make, comm::Devices devices)
      : DataParallel(model, make, std::move(devices), Options()) {}
  ~DataParallel();

  // The model's outputs for x (N, ...), (N, ...) on the first device.
  Tensor operator()(const Tensor& x);

  // The same for any function of a replica and its rows of the inputs, called on the replica's thread. Each of its results is gathered on
  // the first device: rows after rows, and those of shape () to one vector, an element a replica, for a reduction of the caller's.
  // Gradients go through the first result alone; the others come detached. A replica without rows is left out unless batch normalisation is
  // synchronised. What f throws is thrown again, naming the replica.
  using ReplicaFn = std::function<Tensors(Module& replica, const Tensors& rows)>;
  Tensors forward(const Tensors& inputs, const ReplicaFn& f);

  // What has travelled between devices so far.
  struct Traffic {
    int64_t transfers = 0, bytes = 0;
  };
  struct Travelled {
    Traffic inputs, parameters, outputs, gradients;
    int64_t bytes() const { return inputs.bytes + parameters.bytes + outputs.bytes + gradients.bytes; }
  };
  const Travelled& travelled() const { return travelled_; }
  const comm::Devices& devices() const { return devices_; }

 private:
  struct Replica;
  void replicate();
  Tensors reduced_gradients(const std::vector<char>& took_part);

  Module& model_;
  const comm::Devices devices_;
  const Options options_;
  std::vector<Replica> replicas_;
  Travelled travelled_;
};

}  // namespace ringtape::nn
