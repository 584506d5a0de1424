#pragma once
#include <cudnn.h>

#include <utility>
#include <vector>

#include "core/cuda/check.h"

namespace ringtape::cuda {

inline void check(cudnnStatus_t status, const char* what, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char more[512] = "";
  cudnnGetLastErrorString(more, sizeof more);
  detail::fail<DeviceError>(
      {what, " failed: ", cudnnGetErrorString(status), more[0] ? ": " : "", more, " (", file, ":", line, ")"});
}

// A descriptor owned by cuDNN. Attributes are set one by one; then finish() checks them, and may reject them.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) { RT_GPU_CHECK(cudnnBackendCreateDescriptor(type, &handle_)); }
  Descriptor(Descriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), parts_(std::move(other.parts_)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(parts_, other.parts_);
    return *this;
  }
  ~Descriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    RT_GPU_CHECK(cudnnBackendSetAttribute(handle_, name, type, int64_t(values.size()), values.data()));
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, std::vector{value});
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& part) {  // which must outlive this
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{part.get()});
  }
  Descriptor& set(cudnnBackendAttributeName_t name, Descriptor&& part) {
    return set(name, parts_.emplace_back(std::move(part)));
  }
  bool try_finish() { return cudnnBackendFinalize(handle_) == CUDNN_STATUS_SUCCESS; }
  Descriptor&& finish() {
    RT_GPU_CHECK(cudnnBackendFinalize(handle_));
    return std::move(*this);
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
  std::vector<Descriptor> parts_;  // whether cuDNN copies them is not documented
};

template <class T> T read_one(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  T out{};
  int64_t count = 0;
  RT_GPU_CHECK(cudnnBackendGetAttribute(d.get(), name, type, 1, &count, &out));
  return out;
}

}  // namespace ringtape::cuda
