#pragma once
#include <cudnn.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The stand-in for libcudnn. It keeps the attributes of descriptors, refuses what cuDNN's documentation forbids, and
// computes a convolution from its descriptors alone, in f64, when the stream of the handle reaches it.
struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
  std::atomic<bool> busy{false};  // a call executes a plan; a second one at the same time is an error
};

namespace ringtape::emulation {

// For tests: an engine with its knobs, as the heuristics propose it.
struct CudnnEngine {
  int64_t index = 0;
  std::vector<std::pair<cudnnBackendKnobType_t, int64_t>> knobs{};
  std::vector<cudnnBackendNumericalNote_t> notes{};
  int64_t workspace_bytes = 0;
  double milliseconds = 1;         // on the fake clock
  double launch_milliseconds = 0;  // of the host, by each call
  bool recordable = true;          // else a call ends the capture
  bool fallback = false;           // proposed by CUDNN_HEUR_MODE_FALLBACK, not by CUDNN_HEUR_MODE_A
  bool builds = true;              // else its plan cannot be finalised
  bool adds = true;                // else its plan cannot be with a beta other than 0
};
void set_cudnn_engines(std::vector<CudnnEngine> engines);  // best first, for every convolution; none: the initial ones

// What has been called since it was asked last. `engine`: the index.
struct CudnnCalls {
  struct Execution {
    cudnnHandle_t handle;
    int device;
    int64_t engine;
  };
  int handles = 0, heuristics = 0, plans = 0;
  std::vector<Execution> executions;
};
CudnnCalls take_cudnn_calls();

// Called by each cudnnBackendExecute with the handle's device, without any lock.
void at_cudnn_execute(std::function<void(int device)> call);

// A descriptor. Numbers hold every type: reals as the bits of a double, pointers and enumerators as integers.
struct CudnnDescriptor {
  using Part = std::shared_ptr<const CudnnDescriptor>;
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, std::vector<int64_t>> numbers{};
  std::map<cudnnBackendAttributeName_t, std::vector<Part>> parts{};  // descriptors; the numbers are their addresses
  std::shared_ptr<const CudnnEngine> engine{};                       // of a configuration or a plan
  Part graph{};                                                      // that it was proposed for

  bool has(cudnnBackendAttributeName_t name) const { return numbers.contains(name); }
  const std::vector<int64_t>& list(cudnnBackendAttributeName_t name) const { return numbers.at(name); }
  int64_t number(cudnnBackendAttributeName_t name) const { return numbers.at(name)[0]; }
  double real(cudnnBackendAttributeName_t name) const;
  const CudnnDescriptor& part(cudnnBackendAttributeName_t name) const { return *parts.at(name)[0]; }
};

// The enumerators of each pass's operation.
struct CudnnPass {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y, output;
};
const CudnnPass* cudnn_pass(cudnnBackendDescriptorType_t operation);  // null: of no convolution

// The status of a call that fails, with its reason for cudnnGetLastErrorString.
cudnnStatus_t cudnn_refuse(cudnnStatus_t status, std::string reason);

// Checks the attributes of a descriptor together, and adds those that follow from them.
cudnnStatus_t finalize_cudnn(CudnnDescriptor& descriptor);

// Puts a plan on the handle's stream; under the lock of the runtime.
cudnnStatus_t put_cudnn(cudnnContext& handle, const CudnnDescriptor& plan, const CudnnDescriptor& pack);

void run_cudnn_hook(int device);
void count_cudnn(const std::function<void(CudnnCalls&)>& how);

}  // namespace ringtape::emulation
