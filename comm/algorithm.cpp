#include "comm/algorithm.h"

#include "comm/algorithm/algorithms.h"
#include "core/registry.h"

namespace ringtape::comm {

namespace {
constexpr const Algorithm* kAlgorithms[] = {&direct,   &double_tree, &doubling, &fixed_order, &halving_doubling,
                                            &pairwise, &ring,        &tree,     &two_level};
}  // namespace

std::span<const Algorithm* const> algorithms() { return kAlgorithms; }

const Algorithm& find_algorithm(std::string_view name) { return find_entry(kAlgorithms, name, "algorithm"); }

// FNV-1a.
uint32_t Algorithm::id() const {
  uint32_t hash = 0x811c9dc5u;
  for (const char* c = name; *c; ++c) hash = (hash ^ uint8_t(*c)) * 0x01000193u;
  return hash;
}

CollectiveFn Algorithm::of(Collective kind) const {
  const CollectiveFn all[] = {barrier, all_reduce, reduce_scatter, all_gather, broadcast,
                              reduce,  gather,     scatter,        all_to_all};
  return all[size_t(kind)];
}

}  // namespace ringtape::comm
