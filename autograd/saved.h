#pragma once
#include <memory>

#include "core/tensor.h"

namespace ringtape {

class SavedValues;  // those of a checkpointed section: autograd/checkpoint.h

// A tensor kept for backward. It remembers the version of its storage: reading it after an in-place write throws
// AutogradError that names both operations. Inside checkpoint() it keeps nothing and is recomputed. The
// result of an operation that can compute it again (recomputed() in autograd/tape.h) is not kept either: it is computed
// when it is first read.
class SavedTensor {
 public:
  enum class Of : uint8_t { value, recomputed };
  explicit SavedTensor(const Tensor& x, Of of = Of::recomputed);
  const Tensor& operator*() const;

 private:
  mutable Tensor x_;
  uint32_t version_ = 0;
  std::shared_ptr<Node> node_;           // that computes x again
  std::shared_ptr<SavedValues> values_;  // inside checkpoint(): the source of the value, and its index there
  size_t index_ = 0;
};

inline SavedTensor save(const Tensor& x) { return SavedTensor(x); }
// Always keeps x itself: for operations that compute their own result again from x.
inline SavedTensor save_value(const Tensor& x) { return SavedTensor(x, SavedTensor::Of::value); }

}  // namespace ringtape
