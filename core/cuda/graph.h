#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "core/cuda/live.h"
#include "core/cuda/memory.h"
#include "core/runtime.h"

namespace ringtape::cuda {

// Work that is recorded once and launched many times with one call, for training steps whose kernels are shorter than
// their launches. The recorded work keeps its addresses and its numbers: inputs must stay at the same addresses, and
// arguments passed by value stay the same, except those that are asked for before each launch (core/again.h,
// RandomState::base). Tensors that outlive `body` keep their address between launches. Memory that `body` allocates
// belongs to the graph and is returned to the system with it.
class Graph : public RecordedWork {
 public:
  // Runs `body` and records everything that it puts on the device's compute stream instead of executing it. Run `body`
  // once before, so that everything that is made on first use exists. Throws DeviceError if it waits for the device or
  // copies from or to the host, and whatever `body` throws. Other threads may use the device meanwhile, except that
  // CUDA then refuses synchronize(), and ends the recording.
  Graph(int index, const std::function<void()>& body);
  ~Graph() override;  // waits for the compute stream
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() override;  // on the compute stream

 private:
  int index_;
  GraphMemory memory_;
  LiveArguments live_;
  cudaGraphExec_t graph_ = nullptr;
};

std::shared_ptr<RecordedWork> record_work(const std::function<void()>& body, int index);

}  // namespace ringtape::cuda
