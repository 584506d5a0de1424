#pragma once
#include <memory>

#include "core/tensor.h"

namespace ringtape {

// A tensor's values on their way to the host: the copy starts here, behind the work that makes them, and is read later. Unlike
// copy_to it does not wait, and reading it waits for nothing that came after.
class Readback {
 public:
  Readback() = default;
  explicit Readback(const Tensor& x);  // needs contiguous(); not recorded

  bool defined() const { return host_.defined(); }
  Tensor get();                        // the values, on cpu:0; waits until they are there

 private:
  Tensor host_;
  std::shared_ptr<PendingRead> pending_;  // null: they are in host_
};

}  // namespace ringtape
