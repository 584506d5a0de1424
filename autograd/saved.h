#pragma once
#include <memory>

#include "core/tensor.h"

namespace ringtape {

class SavedValues;  // those of a checkpointed section: autograd/checkpoint.h

// A tensor kept for backward. It remembers the version of its storage: reading it after an in-place write throws
// AutogradError that names both operations. Inside checkpoint() it keeps nothing and is recomputed.
class SavedTensor {
 public:
  explicit SavedTensor(const Tensor& x);
  const Tensor& operator*() const;

 private:
  Tensor x_;
  uint32_t version_ = 0;
  std::shared_ptr<SavedValues> values_;  // inside checkpoint(): the source of the value, and its index there
  size_t index_ = 0;
};

inline SavedTensor save(const Tensor& x) { return SavedTensor(x); }

}  // namespace ringtape
