#pragma once
#include <memory>

#include "core/tensor.h"

namespace ringtape {

class SavedValues;  // of a checkpointed section: autograd/checkpoint.h

// A tensor kept for backward. Remembers at which version of its storage it was saved; reading it after an in-place
// write throws AutogradError naming both operations. Inside checkpoint() it keeps nothing and is computed again.
class SavedTensor {
 public:
  explicit SavedTensor(const Tensor& x);
  const Tensor& operator*() const;

 private:
  Tensor x_;
  uint32_t version_ = 0;
  std::shared_ptr<SavedValues> values_;  // where the value comes from instead, and its number there
  size_t index_ = 0;
};

inline SavedTensor save(const Tensor& x) { return SavedTensor(x); }

}  // namespace ringtape
