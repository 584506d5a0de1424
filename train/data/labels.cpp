#include "train/data/labels.h"

#include "autograd/ops.h"

namespace ringtape {

Labels Labels::rows(const Part& part) const {
  const auto cut = [&](const Tensor& x) {
    return !x.defined() || part.size() == x.dim(0) ? x : slice(x, 0, part.begin, part.end);
  };
  return {cut(y), cut(other), share, scale};
}

}  // namespace ringtape
