#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "autograd/prepared.h"

namespace ringtape {

// A function of images of any size, prepared for each size that comes where that is possible, which it is on cpu:0
// alone. Else it is f itself, in that precision and without gradients, for one thread at a time. Many threads may call
// it at once.
class PreparedBySize {
 public:
  using Function = std::function<Tensor(const Tensor&)>;
  explicit PreparedBySize(Function f, DType precision = DType::f32) : f_(std::move(f)), precision_(precision) {}

  Tensor operator()(const Tensor& images) const;  // f32 (N, H, W, C), contiguous

 private:
  std::shared_ptr<const Prepared> prepared_for(const Tensor& images) const;

  const Function f_;
  const DType precision_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const Prepared>> prepared_;  // null: it cannot be
};

}  // namespace ringtape
