#pragma once
#include <cstddef>

namespace ringtape::cuda {

// Page-locked host memory: copies to and from a device use it while the host continues. Construction and destruction
// may wait for the devices, so keep buffers.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(size_t bytes);  // throws OutOfMemory
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ringtape::cuda
