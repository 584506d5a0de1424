#pragma once
#include <memory>

#include "core/tensor.h"

namespace ringtape {

struct PendingRead;  // core/runtime.h

// A tensor's values on their way to the host. The copy starts here, after the work that computes them, and is read
// later. Unlike copy_to, construction does not wait, and get() does not wait for later work.
class Readback {
 public:
  Readback() = default;
  explicit Readback(const Tensor& x);  // x must be contiguous; not recorded

  bool defined() const { return host_.defined(); }
  Tensor get();  // the values, on cpu:0; waits for the copy

 private:
  Tensor host_;
  std::shared_ptr<PendingRead> pending_;  // null: the values are in host_
};

}  // namespace ringtape
