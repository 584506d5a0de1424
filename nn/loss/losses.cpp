#include "nn/loss/losses.h"

#include <algorithm>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"

namespace ringtape::nn {

static std::vector<Loss>& registered_losses() {
  static std::vector<Loss> all;
  return all;
}

RegisterLoss::RegisterLoss(const Loss& loss) {
  std::vector<Loss>& all = registered_losses();
  const auto before = [](const Loss& a, const Loss& b) { return std::string_view(a.name) < b.name; };
  all.insert(std::upper_bound(all.begin(), all.end(), loss, before), loss);
}

std::span<const Loss> losses() { return registered_losses(); }

Tensor some_rows(int64_t n, const Tensor& like) {
  const Tensor x = reshape(arange(n * like.dim(1), DType::f64, like.device()), {n, like.dim(1)});
  return l2_normalize(sigmoid(square(x - 0.4 * double(n)) / double(n)) - 0.6);
}

}  // namespace ringtape::nn
