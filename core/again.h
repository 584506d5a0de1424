#pragma once
#include <functional>

namespace ringtape {

// Gives an argument of a kernel anew. A graph that has recorded the call (core/cuda/graph.h) asks it before each
// launch, as long as the graph lives.
template <class T> using Again = std::function<T()>;

// The argument as it is now, which knows `again`. That must live during the call.
template <class T> T asked(const Again<T>& again) {
  T now = again();
  now.again = &again;
  return now;
}

}  // namespace ringtape
