#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/process_group.h"
#include "nn/data_parallel.h"
#include "nn/ssl/method.h"
#include "train/data/dataset.h"
#include "train/model/models.h"
#include "train/weights/weights.h"

namespace ringtape {

// The images and the network of a run, on their device.
struct Task {
  Device device = {};
  Splits data = {};
  std::optional<Splits> tested = {};              // whose features are tested instead of those of `data`
  std::string model_name = {}, method_name = {};  // method_name: empty with labels
  ModelSpec spec = {};
  std::optional<LoadedWeights> initial = {};        // what a file of initial weights has, if one was read
  std::unique_ptr<nn::Module> model = {};           // the network of that name, or a method whose backbone it is
  std::unique_ptr<nn::DataParallel> replicas = {};  // of `model`, for dp and ddp2; null otherwise

  // The images with labels whose features are tested; null: there are none.
  const Splits* judges() const {
    const Splits& all = tested ? *tested : data;
    return all.train.classes > 0 && all.test.size() > 0 ? &all : nullptr;
  }
  const std::string& name() const { return method_name.empty() ? model_name : method_name; }
  nn::Method* method() const { return dynamic_cast<nn::Method*>(model.get()); }  // null: it learns labels
  nn::Module& network() const { return method() ? method()->backbone() : *model; }
  comm::Devices devices() const { return replicas ? replicas->devices() : comm::Devices{device}; }

  Tensor classify(const Tensor& images) const;  // the logits; for a method, those of its probe
  // From now on, a batch is the samples of all ranks; with sync_bn also for batch normalisation.
  void distribute(comm::ProcessGroup& group, bool sync_bn) const;
};

}  // namespace ringtape
