#include "kernels/softmax.h"

#include "autograd/ops/along.h"

namespace ringtape {
namespace {

// The kernels work along the last axis of contiguous memory: moves `axis` there, applies f, and moves it back.
template <class F> Tensor along_last_axis(const Tensor& x, int axis, const char* op, const F& f) {
  check_float(x, op);
  const int at = axis_of(x, axis, op);
  if (x.rank() == 0) return reshape(f(reshape(x, {1})), {});
  if (at == x.rank() - 1) return f(contiguous(x));
  return transpose(f(contiguous(transpose(x, at, -1))), at, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) {
  if (const CastTo to = autocast("softmax", x)) return softmax(to(x), axis);
  return along_last_axis(x, axis, "softmax", [](const Tensor& rows) {
    Tensor y = empty_like(rows);
    softmax_forward(y, rows);
    return record("softmax", {rows}, y, [y = save(y)](const Tensor& dy) -> Tensors {
      Tensor dx = empty_like(dy);
      softmax_backward(dx, *y, contiguous(dy));
      return {dx};
    });
  });
}

Tensor log_softmax(const Tensor& x, int axis) {
  if (const CastTo to = autocast("log_softmax", x)) return log_softmax(to(x), axis);
  return along_last_axis(x, axis, "log_softmax", [](const Tensor& rows) {
    Tensor y = empty_like(rows);
    log_softmax_forward(y, rows);
    return record("log_softmax", {rows}, y, [y = save(y)](const Tensor& dy) -> Tensors {
      Tensor dx = empty_like(dy);
      log_softmax_backward(dx, *y, contiguous(dy));
      return {dx};
    });
  });
}

#define RT_SOFTMAX_RECORD(op)                                                                      \
  static const RegisterOp register_##op {                                                          \
    {                                                                                              \
      .name = #op,                                                                                 \
      .samples = {{"row", {{{1, 7}, -4, 4}}, [](const Tensors& t) { return op(t[0]); }},           \
                  {"odd", {{{5, 33}, -8, 8}}, [](const Tensors& t) { return op(t[0]); }},          \
                  {"first_axis", {{{6, 3}, -4, 4}}, [](const Tensors& t) { return op(t[0], 0); }}, \
                  {"middle", {{{2, 17, 3}, -4, 4}}, [](const Tensors& t) { return op(t[0], 1); }}, \
                  {"one_class", {{{3, 1}}}, [](const Tensors& t) { return op(t[0]); }},            \
                  {"scalar", {{{}}}, [](const Tensors& t) { return op(t[0]); }},                   \
                  {"empty", {{{0, 4}}}, [](const Tensors& t) { return op(t[0]); }},                \
                  {"no_classes", {{{3, 0}}}, [](const Tensors& t) { return op(t[0]); }},           \
                  {"empty_first_axis", {{{0, 4}}}, [](const Tensors& t) { return op(t[0], 0); }}}, \
      .workloads = {{"8192x1000", {{{8192, 1000}}}, [](const Tensors& t) { return op(t[0]); }}},   \
      .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return op(t[0], 2); }},              \
                  {"scalar", {{{}}}, [](const Tensors& t) { return op(t[0], 1); }}},               \
      .tolerance = 4,                                                                              \
    }                                                                                              \
  }
RT_SOFTMAX_RECORD(softmax);
RT_SOFTMAX_RECORD(log_softmax);
#undef RT_SOFTMAX_RECORD

}  // namespace ringtape
