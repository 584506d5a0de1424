#include "autograd/ops/common.h"

namespace ringtape {

Tensor permute(const Tensor& x, const std::vector<int>& order) {
  RT_CHECK_AS(ShapeError, int(order.size()) == x.rank(), "permute: ", order.size(), " axes given for shape ",
              x.shape());
  Shape shape = x.shape(), strides = x.strides();
  std::vector<int> inverse(order.size(), -1);
  for (int i = 0; i < x.rank(); ++i) {
    const int from = normalize_axis(order[size_t(i)], x.rank(), "permute");
    RT_CHECK_AS(ShapeError, inverse[size_t(from)] < 0, "permute: axis ", from, " is given twice");
    inverse[size_t(from)] = i;
    shape[i] = x.shape()[from];
    strides[i] = x.strides()[from];
  }
  describe([&] {
    std::vector<int64_t> axes;
    for (const int axis : order) axes.push_back(normalize_axis(axis, x.rank(), "permute"));
    return OpAttributes{{"axes", axes}};
  });
  return record("permute", {x}, x.window(shape, strides),
                [inverse](const Tensor& dy) -> Tensors { return {permute(dy, inverse)}; });
}

Tensor transpose(const Tensor& x, int a, int b) {
  std::vector<int> order(size_t(x.rank()));
  for (int i = 0; i < x.rank(); ++i) order[size_t(i)] = i;
  std::swap(order[size_t(normalize_axis(a, x.rank(), "transpose"))],
            order[size_t(normalize_axis(b, x.rank(), "transpose"))]);
  return permute(x, order);
}

static const RegisterOp register_permute{{
    .name = "permute",
    .samples = {{"rotate",
                 {{{2, 3, 4}}},
                 [](const Tensors& t) {
                   return permute(t[0], {2, 0, 1});
                 }},
                {"empty",
                 {{{0, 3}}},
                 [](const Tensors& t) {
                   return permute(t[0], {1, 0});
                 }}},
    .workloads = {{"copy_4096x4096",
                   {{{4096, 4096}}},
                   [](const Tensors& t) {
                     return contiguous(permute(t[0], {1, 0}));
                   }}},
    .invalid = {{"count", {{{3, 5}}}, [](const Tensors& t) { return permute(t[0], {0}); }},
                {"twice",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return permute(t[0], {1, 1});
                 }}},
}};
static const RegisterOp register_transpose{{
    .name = "transpose",
    .samples = {{"last", {{{2, 3, 4}}}, [](const Tensors& t) { return transpose(t[0]); }},
                {"first", {{{2, 3, 4}}}, [](const Tensors& t) { return transpose(t[0], 0, 1); }},
                {"empty", {{{2, 0, 4}}}, [](const Tensors& t) { return transpose(t[0]); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return transpose(t[0], 0, 2); }}},
}};

}  // namespace ringtape
