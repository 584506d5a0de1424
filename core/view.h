#pragma once
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace ringtape {

// What a kernel sees of a tensor: where its elements are. Does not own them. Strides are in elements; a stride of 0
// repeats an element along a broadcast axis. Passed by value, also to the GPU.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  int rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  template <class T> T* as() const { return static_cast<T*>(data); }
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  bool contiguous() const {
    int64_t step = 1;
    bool dense = true;
    for (int i = rank - 1; i >= 0; --i) {
      dense = dense && (dims[i] == 1 || strides[i] == step);
      step *= dims[i];
    }
    return dense || step == 0;
  }
  Shape shape() const { return Shape(std::span<const int64_t>(dims, size_t(rank))); }
};

}  // namespace ringtape
