#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

// Page-locked buffers for copies between host and device that need not wait for a stream (CUDA waits for it before it
// reads pageable memory). Buffers are reused after their copy is done.
namespace ringtape::cuda {

struct StagingBuffer;  // a buffer, and the event after its last copy

class Staging {
 public:
  Staging(int index, size_t bytes);  // throws OutOfMemory
  ~Staging();                        // returns the buffer; it is free once the work that used it is done
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void* data() const;
  void used_until_now(cudaStream_t stream);  // by work on `stream`
  void wait() const;                         // until that work is done
  void wait_on(cudaStream_t stream) const;   // later work on `stream` starts after it

 private:
  int index_;
  std::unique_ptr<StagingBuffer> buffer_;
};

}  // namespace ringtape::cuda
