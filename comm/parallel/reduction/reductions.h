#pragma once
#include "comm/parallel/reduction.h"

// The reductions of this folder.
namespace ringtape::comm {

std::unique_ptr<Reduction> make_sum(ProcessGroup& group, Gradients gradients, const Settings& settings);
template <DType dtype>  // bf16 or f16
std::unique_ptr<Reduction> make_sixteen_bit(ProcessGroup& group, Gradients gradients, const Settings& settings);
// Of gradients with kept shares.
std::unique_ptr<Reduction> make_over_shares(ProcessGroup& group, Gradients gradients);
std::unique_ptr<Reduction> make_powersgd(ProcessGroup& group, Gradients gradients, const Settings& settings);

}  // namespace ringtape::comm
