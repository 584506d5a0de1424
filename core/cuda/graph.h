#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "core/cuda/memory.h"

namespace ringtape::cuda {

// Work recorded once and launched many times with one call: a training step whose kernels are shorter than their launches.
// The recorded work keeps its addresses and its numbers: inputs must lie where they lay, and what was passed by value (a
// learning rate, a random state) stays as it was. Tensors that live on after `body` keep their place between launches.
// What `body` allocates comes from memory of the graph's own, which goes back to the system with the graph.
class Graph {
 public:
  // Runs `body` with everything it puts on the device's compute stream recorded instead of executed; run it once before, so
  // that what is made on first use is there. Throws DeviceError if it waits for the device or copies from or to the host,
  // and what `body` throws.
  Graph(int index, const std::function<void()>& body);
  ~Graph();  // waits for the compute stream
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch();  // on the compute stream

 private:
  int index_;
  GraphMemory memory_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace ringtape::cuda
