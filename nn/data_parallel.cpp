#include "nn/data_parallel.h"

#include "comm/store/store.h"
#include "comm/transport/transports.h"
#include "nn/batch_norm.h"

namespace ringtape::nn {

struct DataParallel::Replica {
  std::unique_ptr<Module> module;
  std::vector<Named> parameters, buffers;
  std::vector<uint32_t> versions;             // of the tensors it was sent; empty: none yet
  std::unique_ptr<comm::ProcessGroup> group;  // for synchronised batch normalisation
};

namespace {

std::vector<Named> not_trained(Module& model) {
  std::vector<Named> out = named_buffers(model);
  for (const Named& f : named_frozen(model)) out.push_back(f);
  return out;
}

// The model's tensors for replicas: parameters, then buffers and frozen parameters.
Tensors state_of(Module& model) {
  Tensors out;
  for (const Named& p : named_parameters(model)) out.push_back(p.tensor->detach());
  for (const Named& b : not_trained(model)) out.push_back(b.tensor->detach());
  return out;
}

std::vector<uint32_t> versions_of(const Tensors& tensors) {
  std::vector<uint32_t> out;
  for (const Tensor& t : tensors) out.push_back(t.storage()->version());
  return out;
}

int64_t bytes_of(const Tensor& x) { return x.size() * int64_t(size_of(x.dtype())); }

void count(DataParallel::Sent& sent, const Tensor& x, Device to) {
  if (!x.defined() || x.device() == to) return;
  ++sent.transfers;
  sent.bytes += bytes_of(x);
}

void check_alike(const std::vector<Named>& model, const std::vector<Named>& replica) {
  bool alike = model.size() == replica.size();
  for (size_t i = 0; alike && i < model.size(); ++i)
    alike = model[i].name == replica[i].name && model[i].tensor->shape() == replica[i].tensor->shape() &&
            model[i].tensor->dtype() == replica[i].tensor->dtype();
  RT_CHECK_AS(UsageError, alike,
              "DataParallel: the parameters or buffers of a new replica differ from those of the model");
}

}  // namespace

DataParallel::DataParallel(Module& model, const std::function<std::unique_ptr<Module>()>& make, comm::Devices devices,
                           Options options)
    : model_(model), devices_(std::move(devices)), options_(options) {
  RT_CHECK_AS(UsageError, !devices_.empty(), "DataParallel: expected at least one device");
  const auto store = comm::memory_store();
  const auto failure = std::make_shared<comm::Failure>();
  for (size_t i = 0; i < devices_.size(); ++i) {
    Replica replica;
    replica.module = make();
    replica.parameters = named_parameters(*replica.module);
    replica.buffers = not_trained(*replica.module);
    check_alike(named_parameters(model_), replica.parameters);
    check_alike(not_trained(model_), replica.buffers);
    replicas_.push_back(std::move(replica));
  }
  if (!options_.synchronize_batch_norm) return;
  comm::parallel_apply(devices_, [&](int i) {
    Replica& replica = replicas_[size_t(i)];
    replica.group = std::make_unique<comm::ProcessGroup>(
        comm::make_transport(devices_[size_t(i)].type == DeviceType::cpu ? "threads" : "p2p",
                             {i, int(devices_.size()), store, failure}, devices_[size_t(i)]));
    replica.group->set_deterministic(options_.deterministic);
    synchronize_batch_norm(*replica.module, replica.group.get());
  });
}

DataParallel::~DataParallel() = default;

// The first replica has the model's own tensors, with its parameters as leaves of a separate graph.
void DataParallel::replicate() {
  const Tensors state = state_of(model_);
  const std::vector<uint32_t> versions = versions_of(state);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& replica = replicas_[i];
    replica.module->train(model_.training());
    replica.module->set_epoch(model_.epoch());
    const bool here = devices_[i] == state[0].device() && i == 0;
    const bool fresh = replica.versions.empty() || !options_.persistent;
    for (size_t j = 0; j < state.size(); ++j) {
      const bool parameter = j < replica.parameters.size();
      Tensor& own = parameter ? *replica.parameters[j].tensor : *replica.buffers[j - replica.parameters.size()].tensor;
      if (!fresh && (here || replica.versions[j] == versions[j])) continue;
      count(traffic_.parameters, state[j], devices_[i]);
      const Tensor sent = here ? state[j] : state[j].copy_to(devices_[i]);
      own = parameter ? leaf(sent) : sent;
    }
    replica.versions = versions;
    for (const Named& p : replica.parameters) zero_grad(*p.tensor);
  }
}

Tensor DataParallel::operator()(const Tensor& x) {
  return forward({x}, [](Module& replica, const Tensors& rows) { return Tensors{replica(rows[0])}; })[0];
}

Tensors DataParallel::forward(const Tensors& inputs, const ReplicaFn& f) {
  RT_CHECK_AS(ShapeError, !inputs.empty(), "DataParallel: expected an input");
  replicate();
  const auto results = std::make_shared<const Results>(compute(scatter(inputs), f));
  Tensors out = gather(*results);
  if (out.empty() || !grad_enabled()) return out;
  Tensors parameters;
  for (const Named& p : named_parameters(model_)) parameters.push_back(*p.tensor);
  out[0] = record("data_parallel", parameters, out[0],
                  [this, results](const Tensor& dy) { return gradients(*results, dy); });
  return out;
}

// The inputs of each replica; none for a replica that takes no part.
std::vector<Tensors> DataParallel::scatter(const Tensors& inputs) {
  std::vector<Tensors> out(replicas_.size());
  for (const Tensor& x : inputs) {
    const Tensors parts = comm::scatter(x.detach(), devices_);
    for (size_t i = 0; i < out.size(); ++i) {
      count(traffic_.inputs, parts[i], x.device());
      out[i].push_back(parts[i]);
    }
  }
  for (Tensors& own : out)
    if (own[0].dim(0) == 0 && !options_.synchronize_batch_norm) own.clear();
  return out;
}

DataParallel::Results DataParallel::compute(const std::vector<Tensors>& inputs, const ReplicaFn& f) {
  Results out(replicas_.size());
  comm::parallel_apply(devices_, [&](int device) {
    const auto i = size_t(device);
    if (inputs[i].empty()) return;
    const Replica& replica = replicas_[i];
    try {
      out[i] = f(*replica.module, inputs[i]);
    } catch (const std::exception& e) {  // other replicas may wait for its batch statistics
      if (replica.group) replica.group->transport().context().failure->raise(e.what());
      throw;
    }
  });
  return out;
}

Tensors DataParallel::gather(const Results& results) {
  std::vector<Tensors> parts;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;
    const Tensors& own = *results[i];
    RT_CHECK_AS(ShapeError, parts.empty() || parts.size() == own.size(), "DataParallel: replica ", i, " has ",
                own.size(), " results, others ", parts.size());
    parts.resize(own.size());
    for (size_t j = 0; j < own.size(); ++j) {
      count(traffic_.outputs, own[j], devices_[0]);
      parts[j].push_back(own[j].detach());
    }
  }
  Tensors out;
  for (const Tensors& each : parts) out.push_back(comm::gather(each, devices_[0]));
  return out;
}

// Of the model's parameters, from that of the first result.
Tensors DataParallel::gradients(const Results& results, const Tensor& dy) {
  Tensors parts(results.size());
  int64_t at = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;
    const Tensor& y = (*results[i])[0];
    const int64_t own = y.rank() == 0 ? 1 : y.dim(0);
    parts[i] = reshape(slice(dy, 0, at, at + own), y.shape());
    at += own;
    count(traffic_.gradients, parts[i], devices_[i]);
    parts[i] = contiguous(to(parts[i], devices_[i]));
  }
  comm::parallel_apply(devices_, [&](int device) {
    const auto i = size_t(device);
    if (results[i] && requires_grad((*results[i])[0])) backward((*results[i])[0], parts[i]);
  });
  return reduced_gradients(results);
}

// Summed in the order of the replicas.
Tensors DataParallel::reduced_gradients(const Results& results) {
  Tensors out(replicas_[0].parameters.size());
  for (size_t j = 0; j < out.size(); ++j) {
    Tensors all;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const Tensor& own = grad(*replicas_[i].parameters[j].tensor);
      if (!results[i] || !own.defined()) continue;
      count(traffic_.gradients, own, devices_[0]);
      all.push_back(own);
      zero_grad(*replicas_[i].parameters[j].tensor);
    }
    if (!all.empty()) out[j] = comm::reduce_add(all, devices_[0]);
  }
  return out;
}

}  // namespace ringtape::nn
