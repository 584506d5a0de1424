#include "comm/parallel/reduction.h"

#include "comm/parallel/reduction/powersgd.h"
#include "comm/parallel/reduction/reductions.h"
#include "core/registry.h"

namespace ringtape::comm {

std::span<const ReductionEntry> reductions() {
  static const ReductionEntry all[] = {
      {"sum", true, make_sum},
      {"bf16", false, make_sixteen_bit<DType::bf16>},
      {.name = "f16", .make = make_sixteen_bit<DType::f16>, .scaled = true},
      {.name = "powersgd", .make = make_powersgd, .settings = PowerSgdOptions{}, .needs_all = true, .repeats = false}};
  return all;
}

const ReductionEntry& find_reduction(std::string_view name) {
  return find_entry(reductions(), name, "gradient reduction");
}

void Reduction::start() {
  sent_.clear();
  begin();
}

void Reduction::send(const Tensor& y, const ProcessGroup::Cuts& cuts) {
  const Work work = cuts ? group_.reduce_scatter(y, cuts) : group_.all_reduce(y);
  sent_.push_back({work.start(), y.size() * int64_t(size_of(y.dtype())) / (cuts ? 2 : 1)});
}

void Reduction::exchange(const Tensor& y, const Tensor& x) {
  sent_.push_back({group_.all_to_all(y, x).start(), y.size() * int64_t(size_of(y.dtype())) / 2});
}

void Reduction::gather(const Tensor& y, const Tensor& x) {
  sent_.push_back({group_.all_gather(y, x).start(), y.size() * int64_t(size_of(y.dtype())) / 2});
}

void Reduction::wait() const {
  for (const Sent& s : sent_) s.work.wait();
}

}  // namespace ringtape::comm
