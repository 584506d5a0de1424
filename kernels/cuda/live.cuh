#pragma once
#include <cstring>

#include "core/again.h"
#include "core/cuda/live.h"
#include "core/random.h"
#include "kernels/cuda/launch.cuh"

// Arguments of kernels that differ between the launches of a recorded graph.
namespace ringtape::cuda {

template <class T> struct Live {
  T now;
  const T* later;  // on the device; null: outside of graphs, where it is `now`

  __device__ T get() const { return later ? *later : now; }
};

// `again` is asked before each launch if a graph is recorded; empty: the argument never changes.
template <class T> Live<T> live_argument(Device device, const T& now, const Again<T>& again) {
  LiveArguments* const all = again ? LiveArguments::recorded(device.index) : nullptr;
  if (!all) return {now, nullptr};
  const auto write = [again](void* to) {
    const T value = again();
    std::memcpy(to, &value, sizeof value);
  };
  return {now, static_cast<const T*>(all->add(sizeof(T), write))};
}

// Of a `step` of kernels/optimizer.h: what `make` makes of it.
template <class Step, class F> auto live_step(Device device, const Step& step, const F& make) {
  using T = decltype(make(step));
  Again<T> again;
  if (step.again) again = [numbers = *step.again, make] { return make(numbers()); };
  return live_argument<T>(device, make(step), again);
}

inline Live<RandomState> live_state(Device device, const RandomState& state) {
  Again<RandomState> again;
  if (state.base) again = [state] { return state.placed(); };
  return live_argument(device, state.placed(), again);
}

}  // namespace ringtape::cuda
