#include "comm/parallel/ops.h"

#include "autograd/ops.h"
#include "autograd/tape.h"

namespace ringtape::comm {

namespace {

Tensor reduced(ProcessGroup& group, const Tensor& x) {
  const Tensor y = empty_like(x);
  group.all_reduce(y, x).wait();
  return y;
}

Tensor gathered(ProcessGroup& group, const Tensor& x) {
  const Tensor y(x.shape().with(0, x.dim(0) * group.size()), x.dtype(), x.device());
  group.all_gather(y, x).wait();
  return y;
}

Tensor scattered(ProcessGroup& group, const Tensor& x) {
  const Tensor y(x.shape().with(0, x.dim(0) / group.size()), x.dtype(), x.device());
  group.reduce_scatter(y, x).wait();
  return y;
}

void check_rows(const ProcessGroup& group, const char* op, const Tensor& x, int parts) {
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() > 0 && x.dim(0) % parts == 0, op, ": x has shape ", x.shape(),
              ", expected a first axis",
              parts > 1 ? concat(" that is a multiple of the ", group.size(), " ranks") : "");
}

}  // namespace

Tensor all_reduce(ProcessGroup& group, const Tensor& x) {
  return record("all_reduce", {x}, reduced(group, x),
                [&group](const Tensor& dy) -> Tensors { return {reduced(group, contiguous(dy))}; });
}

Tensor all_gather(ProcessGroup& group, const Tensor& x) {
  check_rows(group, "all_gather", x, 1);
  return record("all_gather", {x}, gathered(group, x),
                [&group](const Tensor& dy) -> Tensors { return {scattered(group, contiguous(dy))}; });
}

Tensor reduce_scatter(ProcessGroup& group, const Tensor& x) {
  check_rows(group, "reduce_scatter", x, group.size());
  return record("reduce_scatter", {x}, scattered(group, x),
                [&group](const Tensor& dy) -> Tensors { return {gathered(group, contiguous(dy))}; });
}

}  // namespace ringtape::comm
