#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "core/cuda/memory.h"

namespace ringtape::cuda {

// Work that is recorded once and launched many times with one call, for training steps whose kernels are shorter than
// their launches. The recorded work keeps its addresses and its numbers: inputs must stay at the same addresses, and
// arguments passed by value (a learning rate, a random state) stay the same. Tensors that outlive `body` keep their
// address between launches. Memory that `body` allocates belongs to the graph and is returned to the system with it.
class Graph {
 public:
  // Runs `body` and records everything that it puts on the device's compute stream instead of executing it. Run `body`
  // once before, so that everything that is made on first use exists. Throws DeviceError if it waits for the device or
  // copies from or to the host, and whatever `body` throws.
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
