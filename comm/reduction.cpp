#include "comm/reduction.h"

#include "comm/reduction/reductions.h"

namespace ringtape::comm {

namespace {
constexpr ReductionEntry kReductions[] = {
    {"sum", true, make_sum}, {"bf16", false, make_sixteen_bit<DType::bf16>}, {"f16", false, make_sixteen_bit<DType::f16>}, {"powersgd", false, make_powersgd}};
}  // namespace

std::span<const ReductionEntry> reductions() { return kReductions; }

const ReductionEntry& find_reduction(std::string_view name) {
  std::string all;
  for (const ReductionEntry& r : kReductions) {
    if (r.name == name) return r;
    all += concat(all.empty() ? "" : ", ", r.name);
  }
  throw UsageError(concat("unknown gradient reduction '", name, "'; there are ", all));
}

void Reduction::start() {
  sent_.clear();
  begin();
}

void Reduction::send(const Tensor& y) { sent_.push_back({group_.all_reduce(y).start(), y.size() * int64_t(size_of(y.dtype()))}); }

void Reduction::wait() const {
  for (const Sent& s : sent_) s.work.wait();
}

}  // namespace ringtape::comm
