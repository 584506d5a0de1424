#include "autograd/ops/common.h"
#include "kernels/copy.h"

namespace ringtape {

Tensor concat(const Tensors& parts, int axis) {
  if (const CastTo to = autocast("concat", parts)) {
    Tensors converted;
    for (const Tensor& p : parts) converted.push_back(to(p));
    return concat(converted, axis);
  }
  RT_CHECK_AS(ShapeError, !parts.empty(), "concat: no tensors given");
  const Tensor& first = parts[0];
  const int at = normalize_axis(axis, first.rank(), "concat");
  int64_t total = 0;
  for (const Tensor& p : parts) {
    check_same(first, p, "concat");
    RT_CHECK_AS(ShapeError, p.rank() == first.rank() && p.shape().with(at, 0) == first.shape().with(at, 0),
                "concat: shapes ", first.shape(), " and ", p.shape(), " differ outside axis ", at);
    total += p.shape()[at];
  }
  const Tensor y(first.shape().with(at, total), first.dtype(), first.device());
  const auto place = [at](const Tensor& whole, int64_t begin, int64_t size) {
    return whole.window(whole.shape().with(at, size), whole.strides(), begin * whole.strides()[at]);
  };
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  for (const Tensor& p : parts) {
    sizes.push_back(p.shape()[at]);
    copy(place(y, begin, sizes.back()), p);
    begin += sizes.back();
  }
  describe([&] { return OpAttributes{{"axis", int64_t(at)}}; });
  return record("concat", parts, y, [sizes, place](const Tensor& dy) -> Tensors {
    Tensors dx;
    int64_t begin = 0;
    for (int64_t size : sizes) {
      dx.push_back(place(dy, begin, size));
      begin += size;
    }
    return dx;
  });
}

static Tensor rows(const Tensors& t) { return concat(t); }
static Tensor columns(const Tensors& t) { return concat(t, -1); }
static const RegisterOp register_concat{{
    .name = "concat",
    .samples = {{"rows", {{{2, 3}}, {{4, 3}}, {{1, 3}}}, rows},
                {"columns", {{{2, 3}}, {{2, 5}}}, columns},
                {"one", {{{2, 3}}}, rows},
                {"with_empty", {{{0, 3}}, {{2, 3}}}, rows}},
    .workloads = {{"2x2048x4096", {{{2048, 4096}}, {{2048, 4096}}}, rows}},
    .invalid = {{"shapes", {{{2, 3}}, {{2, 4}}}, rows}, {"rank", {{{2, 3}}, {{3}}}, rows}, {"none", {}, rows}},
}};

}  // namespace ringtape
