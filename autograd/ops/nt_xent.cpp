#include "kernels/nt_xent.h"

#include "autograd/ops/common.h"
#include "kernels/reduce.h"

namespace ringtape {

// Whether both are the same tensor, also for autograd.
static bool same_tensor(const Tensor& a, const Tensor& b) {
  const bool same_memory = a.storage() == b.storage() && View(a).data == View(b).data && a.strides() == b.strides();
  return same_memory && a.shape() == b.shape() && a.node() == b.node();
}

Tensor nt_xent(const Tensor& q, const Tensor& k, int64_t first, double temperature) {
  check_float(q, "nt_xent");
  check_same(q, k, "nt_xent");
  RT_CHECK_AS(
      ShapeError,
      q.rank() == 2 && k.rank() == 2 && q.shape()[1] == k.shape()[1] && q.shape()[0] > 0 && q.shape()[0] % 2 == 0,
      "nt_xent: expected q (2 n, D) and k (M, D), got ", q.shape(), " and ", k.shape());
  const int64_t rows = q.shape()[0];
  RT_CHECK_AS(ShapeError, first >= 0 && first + rows <= k.shape()[0], "nt_xent: q ", q.shape(), " at row ", first,
              " of k ", k.shape());
  RT_CHECK_AS(UsageError, temperature > 0, "nt_xent: temperature ", temperature, " is not above 0");
  const bool alone = same_tensor(q, k);
  if (size_of(q.dtype()) == 2) {
    const Tensor wide = cast(q, DType::f32);
    return nt_xent(wide, alone ? wide : cast(k, DType::f32), first, temperature);
  }
  const Tensor x = contiguous(q), y = alone ? x : contiguous(k);
  const ViewPairs pairs{rows, 0, first};
  Tensor each({rows}, x.dtype(), x.device()), lse = empty_like(each), loss({1}, x.dtype(), x.device());
  nt_xent_forward(each, lse, x, y, pairs, 1 / temperature);
  mean_forward(loss, each);
  // The gradient of q or k; the one that holds the queries is passed with their lse.
  const auto side = [pairs, scale = 1 / temperature](size_t input, const Tensor& of, const Tensor& other,
                                                     const View& lse, const View& other_lse, const Tensor& dy) {
    if (!needs_grad(input)) return Tensor{};
    const Tensor d = empty_grad(input, of.shape(), of.dtype(), of.device());
    nt_xent_backward(d, of, other, lse, other_lse, dy, input ? pairs.swapped() : pairs, scale);
    return d;
  };
  if (alone)
    return record("nt_xent", {x}, loss.window({}, {}),
                  [x = save(x), lse = save(lse), side](const Tensor& dy) -> Tensors {
                    return {side(0, *x, *x, *lse, *lse, dy)};
                  });
  return record("nt_xent", {x, y}, loss.window({}, {}),
                [x = save(x), y = save(y), lse = save(lse), side](const Tensor& dy) -> Tensors {
                  return {side(0, *x, *y, *lse, View{}, dy), side(1, *y, *x, View{}, *lse, dy)};
                });
}

static Tensor alone(const Tensors& t) { return nt_xent(t[0], t[0], 0, 0.5); }
static Tensor among(const Tensors& t) { return nt_xent(t[0], t[1], 3, 0.5); }
static double nt_xent_flops(const Tensors& t, const Tensor&) {
  return 2.0 * double(t.front().size()) * double(t.back().shape()[0]);
}
static const RegisterOp register_nt_xent{{
    .name = "nt_xent",
    .samples = {{"alone", {{{6, 5}}}, alone},
                {"one_image", {{{2, 3}}}, alone},
                {"among", {{{4, 3}}, {{9, 3}}}, among},
                {"sharp", {{{6, 7}}, {{14, 7}}}, [](const Tensors& t) { return nt_xent(t[0], t[1], 8, 0.1); }},
                {"tiles", {{{130, 17}}}, alone},
                {"tiles_among",
                 {{{70, 70}, -.3, .3}, {{150, 70}, -.3, .3}},
                 [](const Tensors& t) { return nt_xent(t[0], t[1], 70, .5); }}},
    .workloads = {{"4096x128", {{{4096, 128}, -0.1, 0.1}}, alone}},
    .invalid = {{"odd", {{{5, 3}}, {{9, 3}}}, among},
                {"outside", {{{8, 3}}, {{9, 3}}}, among},
                {"dimensions", {{{4, 3}}, {{9, 4}}}, among},
                {"none", {{{0, 3}}, {{9, 3}}}, among},
                {"temperature", {{{4, 3}}}, [](const Tensors& t) { return nt_xent(t[0], t[0], 0, 0); }}},
    .flops = nt_xent_flops,
    .tolerance = 8,
}};

}  // namespace ringtape
