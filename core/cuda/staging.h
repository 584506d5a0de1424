#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

// Page-locked buffers that copies between host and device go through, so that nobody waits for a stream: CUDA itself waits for
// it before it reads pageable memory. They are kept and used again once their copy is done.
namespace ringtape::cuda {

struct StagingBuffer;  // a buffer, and the event behind its last copy

class Staging {
 public:
  Staging(int index, size_t bytes);        // throws OutOfMemory
  ~Staging();                              // gives it back; it is free when the work it was used by, until then, is done
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void* data() const;
  void used_until_now(cudaStream_t stream);  // by work on `stream`
  void wait() const;                         // for that work

 private:
  int index_;
  std::unique_ptr<StagingBuffer> buffer_;
};

}  // namespace ringtape::cuda
