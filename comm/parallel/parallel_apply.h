#pragma once
#include <functional>

#include "comm/parallel/data_parallel.h"

namespace ringtape::comm {

// Runs f(0) .. f(n - 1) at once, one for each of n devices, each on its own thread; returns when all are done. The
// threads are kept for later calls from the caller's thread. Each thread has the caller's grad mode and autocast, its
// share of the caller's threads() for kernels, and its own random numbers, which depend only on the caller's. If calls
// failed, throws the exception with the lowest index, with its type of core/check.h and the replica in front of its
// message: "in replica 1 on cpu:1: ...".
void parallel_apply(const Devices& devices, const std::function<void(int replica)>& f);

}  // namespace ringtape::comm
