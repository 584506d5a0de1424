#pragma once
#include <optional>
#include <string>

#include "autograd/create.h"
#include "nn/module.h"

namespace ringtape::nn {

// The rows of weight (count, width) that an index (i64 or i32) of any shape names: the shape of the index and width. At
// first N(0, 1). The row `padding` is zero at first and gets no gradient.
class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t width, std::optional<int64_t> padding = {})
      : weight(leaf(first_weight(count, width, padding))), padding_(padding) {}
  Tensor forward(const Tensor& index) override { return embedding(index, weight, padding_); }
  void visit(Visitor& v) override { v.parameter("weight", weight); }
  std::string str() const override {
    return concat("Embedding(", weight.shape()[0], " x ", weight.shape()[1],
                  padding_ ? concat(", padding ", *padding_) : "", ")");
  }

  Tensor weight;

 private:
  static Tensor first_weight(int64_t count, int64_t width, std::optional<int64_t> padding) {
    const Tensor w = randn({count, width});
    if (!padding) return w;
    RT_CHECK_AS(UsageError, *padding >= -count && *padding < count, "Embedding: the padding ", *padding,
                " is not one of ", count, " rows");
    return masked_fill(w, equal(reshape(arange(count), {count, 1}), *padding < 0 ? *padding + count : *padding), 0);
  }

  std::optional<int64_t> padding_;
};

}  // namespace ringtape::nn
