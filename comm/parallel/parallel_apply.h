#pragma once
#include <functional>

#include "comm/parallel/data_parallel.h"

namespace ringtape::comm {

// f(0) .. f(n - 1) at once, one for each of n devices, each on a thread of its own; returns when
// all are done. The threads stay with the caller's thread. Each has the caller's grad mode and
// autocast, its share of the caller's threads() for kernels, and random numbers of its own that
// depend on the caller's alone. Then throws the first exception by index, with the type of
// core/check.h that it has and the replica before its message: "in replica 1 on cpu:1: ...".
void parallel_apply(const Devices& devices, const std::function<void(int replica)>& f);

}  // namespace ringtape::comm
