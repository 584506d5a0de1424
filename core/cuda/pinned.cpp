#include "core/cuda/pinned.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda/check.h"

namespace ringtape::cuda {

PinnedBuffer::PinnedBuffer(size_t bytes) {
  if (bytes == 0) return;
  const cudaError_t status = cudaHostAlloc(&data_, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation || status == cudaErrorInvalidValue) {  // the latter for absurd sizes
    cudaGetLastError();
    detail::fail<OutOfMemory>(
        {"out of page-locked host memory: asked for ", bytes, " bytes; use fewer workers or a smaller batch"});
  }
  check(status, "cudaHostAlloc(bytes)", __FILE__, __LINE__);
  bytes_ = bytes;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) cudaFreeHost(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace ringtape::cuda
