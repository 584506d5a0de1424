#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/cuda/live.h"
#include "core/cuda/memory.h"
#include "core/runtime.h"

namespace ringtape::cuda {

// Work that is recorded once and launched many times with few calls, for training steps whose kernels are shorter than
// their launches: one call for all that lies between two calls of at_each_launch(). The recorded work keeps its
// addresses and its numbers: inputs must stay at the same addresses, and arguments passed by value stay the same,
// except those that are asked for before each launch (core/again.h, RandomState::base). Tensors that outlive `body`
// keep their address between launches. Memory that `body` allocates belongs to the graph and is returned to the system
// with it.
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

  struct Destroy {
    void operator()(cudaGraphExec_t graph) const noexcept;
  };
  struct Part {
    std::unique_ptr<CUgraphExec_st, Destroy> graph;  // null: no work
    std::vector<std::function<void()>> then;         // what follows on the host
  };

 private:
  int index_;
  GraphMemory memory_;
  LiveArguments live_;
  std::vector<Part> parts_;
};

std::shared_ptr<RecordedWork> record_work(const std::function<void()>& body, int index);

}  // namespace ringtape::cuda
