#include "comm/algorithm.h"

#include "comm/algorithm/algorithms.h"

namespace ringtape::comm {

namespace {
constexpr const Algorithm* kAlgorithms[] = {&ring};
}  // namespace

std::span<const Algorithm* const> algorithms() { return kAlgorithms; }

const Algorithm& find_algorithm(std::string_view name) {
  std::string all;
  for (const Algorithm* a : kAlgorithms) {
    if (a->name == name) return *a;
    all += concat(all.empty() ? "" : ", ", a->name);
  }
  throw UsageError(concat("unknown algorithm '", name, "'; there are ", all));
}

CollectiveFn Algorithm::of(Collective kind) const {
  const CollectiveFn all[] = {barrier, all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all};
  return all[size_t(kind)];
}

}  // namespace ringtape::comm
