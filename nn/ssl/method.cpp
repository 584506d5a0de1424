#include "nn/ssl/method.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "autograd/tape.h"
#include "core/registry.h"

namespace ringtape::nn {

static constexpr const char* kGather = "gather-distributed";

void visit_gather(Fields& f, bool& gather) {
  f(kGather, gather, {.help = "compute the loss from the outputs of all ranks, not only of this rank"});
}

bool MethodEntry::gathers() const {
  Settings own = settings;
  return find_field(own, kGather).has_value();
}

static void check_gather(bool gathers, int64_t ranks) {
  RT_CHECK_AS(UsageError, !gathers || ranks > 1, "--", kGather,
              ": needs several ranks, but there is only one; leave it out, or use --strategy ddp --devices N");
}

void MethodEntry::check_batches(const Settings& chosen, const BatchPlan& batch) const {
  Settings own = chosen;
  const auto gather = find_field(own, kGather);
  check_gather(gather && *std::get<bool*>(*gather), batch.ranks);
  if (check) check(chosen, batch);
}

Tensor Method::encode(const Tensor& view) {
  const Tensor features = (*encoder_.backbone)(view);
  probe(features);
  return (*encoder_.projection)(features);
}

void Method::probe(const Tensor& features) {
  if (probe_ && !probed_.defined()) probed_ = features.detach();
}

void Method::distribute(comm::ProcessGroup& group) {
  check_gather(gathers_, group.size());
  group_ = group.size() > 1 ? &group : nullptr;
}

Tensors Method::step_outputs(const Tensors& inputs) {
  probed_ = {};
  Tensors out = outputs(inputs);
  if (probe_) out.push_back((*probe_)(std::exchange(probed_, {})));
  return out;
}

// Gradients go through only one result of the replicas, so outputs with gradients are concatenated in it.
Tensors outputs_of(DataParallel& replicas, const Tensors& inputs) {
  struct Output {
    int64_t width;
    bool packed;
  };
  std::vector<Output> layout;
  std::mutex mutex;
  const Tensors results = replicas.forward(inputs, [&](Module& replica, const Tensors& rows) {
    Tensors side, apart;
    std::vector<Output> own;
    for (const Tensor& y : dynamic_cast<Method&>(replica).step_outputs(rows)) {
      own.push_back({y.dim(1), requires_grad(y)});
      (own.back().packed ? side : apart).push_back(y);
    }
    apart.insert(apart.begin(), side.empty() ? zeros({rows[0].dim(0), 0}) : concat(side, 1));
    const std::lock_guard lock(mutex);
    layout = own;  // the same for all replicas
    return apart;
  });
  Tensors out;
  int64_t column = 0;
  size_t next = 1;
  for (const Output& y : layout) {
    out.push_back(y.packed ? slice(results[0], 1, column, column + y.width) : results[next++]);
    if (y.packed) column += y.width;
  }
  return out;
}

static std::vector<MethodEntry>& registered_methods() {
  static std::vector<MethodEntry> all;
  return all;
}

// Those of lightly's table of distributed training, in its order; the others follow by name.
static constexpr std::string_view kTable[] = {"moco", "simclr", "simsiam", "barlow_twins", "byol", "swav"};

RegisterMethod::RegisterMethod(const MethodEntry& entry) {
  const auto place = [](const MethodEntry& e) {
    return std::pair(std::ranges::find(kTable, e.name), std::string_view(e.name));
  };
  std::vector<MethodEntry>& all = registered_methods();
  add_entry(all, entry);
  std::ranges::sort(all, {}, place);
}

std::span<const MethodEntry> methods() { return registered_methods(); }
const MethodEntry& find_method(std::string_view name) { return find_entry(methods(), name, "method"); }

}  // namespace ringtape::nn
