#include "kernels/attention.h"

#include <cmath>

#include "autograd/ops/common.h"

namespace ringtape {
namespace {

// (..., N, D) as (A, H, N, D), outside the graph: a view if strides allow it.
Tensor as_heads(const Tensor& x) {
  const Shape& s = x.shape();
  const int last = x.rank() - 1;
  if (x.rank() == 4) return x.detach();
  if (x.rank() > 4)
    return reshape(x.detach(), {s.size() / std::max<int64_t>(1, s[last - 1] * s[last]), 1, s[last - 1], s[last]});
  const int64_t heads = x.rank() == 3 ? s[0] : 1, step = x.rank() == 3 ? x.strides()[0] : 0;
  return x.window({1, heads, s[last - 1], s[last]}, {0, step, x.strides()[last - 1], x.strides()[last]});
}

// As x, with `columns` dimensions. Of heads (A, H, N, D) with memory (A, N, H, D): to put them side by side is a view.
Tensor beside_heads(const Tensor& x, int64_t columns) {
  Shape shape = x.shape();
  shape[x.rank() - 1] = columns;
  if (x.rank() != 4) return Tensor(shape, x.dtype(), x.device());
  return transpose(Tensor({shape[0], shape[2], shape[1], columns}, x.dtype(), x.device()), 1, 2);
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  constexpr const char* op = "scaled_dot_product_attention";
  check_float(q, op);
  check_same(q, k, op);
  check_same(q, v, op);
  const int rank = q.rank();
  bool same = rank >= 2 && k.rank() == rank && v.rank() == rank && q.shape()[rank - 1] == k.shape()[rank - 1] &&
              k.shape()[rank - 2] == v.shape()[rank - 2] && q.shape()[rank - 1] > 0;
  for (int i = 0; same && i + 2 < rank; ++i) same = q.shape()[i] == k.shape()[i] && q.shape()[i] == v.shape()[i];
  RT_CHECK_AS(ShapeError, same, op, ": expected q (..., N, D), k (..., M, D) and v (..., M, E), got ", q.shape(), ", ",
              k.shape(), " and ", v.shape());
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                    std::optional<double> scale) {
  if (const CastTo to = autocast("scaled_dot_product_attention", q, k, v))
    return scaled_dot_product_attention(to(q), to(k), to(v), causal, scale);
  check_operands(q, k, v);
  const double factor = scale.value_or(1 / std::sqrt(double(q.shape()[q.rank() - 1])));
  RT_CHECK_AS(UsageError, factor > 0, "scaled_dot_product_attention: scale ", factor, " is not above 0");
  const Tensor y = beside_heads(q, v.shape()[v.rank() - 1]);
  const Tensor heads = as_heads(q);
  const Tensor lse({heads.shape()[0], heads.shape()[1], heads.shape()[2]}, wide_dtype(q), q.device());
  attention_forward(as_heads(y), lse, heads, as_heads(k), as_heads(v), factor, causal);
  return record("scaled_dot_product_attention", {q, k, v}, y,
                [q = save(q), k = save(k), v = save(v), y = save(y), lse = save(lse), factor,
                 causal](const Tensor& dy) -> Tensors {
                  const auto like = [](const Tensor& x) { return beside_heads(x, x.shape()[x.rank() - 1]); };
                  const Tensor dq = like(*q), dk = like(*k), dv = like(*v);
                  attention_backward(as_heads(dq), as_heads(dk), as_heads(dv), as_heads(dy), as_heads(*y), *lse,
                                     as_heads(*q), as_heads(*k), as_heads(*v), factor, causal);
                  return {dq, dk, dv};
                });
}

static Tensor attend(const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2]); }
static Tensor causal(const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2], true); }
// Heads side by side, as a projection gives them: (A, N, H, D).
static Tensor side_by_side(const Tensors& t) {
  return transpose(attend({transpose(t[0], 1, 2), transpose(t[1], 1, 2), transpose(t[2], 1, 2)}), 1, 2);
}
static double attention_flops(const Tensors& t, const Tensor& y) {
  return 2.0 * double(t[1].shape()[t[1].rank() - 2]) * double(y.size() + t[0].size());
}
static const RegisterOp register_attention{{
    .name = "scaled_dot_product_attention",
    .samples = {{"heads", {{{2, 3, 5, 4}}, {{2, 3, 5, 4}}, {{2, 3, 5, 4}}}, attend},
                {"cross", {{{2, 3, 7}}, {{2, 9, 7}}, {{2, 9, 5}}}, attend},
                {"one_head", {{{6, 3}}, {{4, 3}}, {{4, 2}}}, attend},
                {"causal", {{{2, 5, 3}}, {{2, 5, 3}}, {{2, 5, 3}}}, causal},
                {"causal_wide", {{{3, 4}}, {{6, 4}}, {{6, 3}}}, causal},
                {"causal_high", {{{7, 4}}, {{3, 4}}, {{3, 4}}}, causal},
                {"side_by_side", {{{2, 5, 3, 8}}, {{2, 6, 3, 8}}, {{2, 6, 3, 8}}}, side_by_side},
                {"many_axes", {{{2, 1, 2, 3, 4}}, {{2, 1, 2, 5, 4}}, {{2, 1, 2, 5, 4}}}, attend},
                {"sharp",
                 {{{4, 6}, -4, 4}, {{9, 6}, -4, 4}, {{9, 6}}},
                 [](const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2], false, 1.0); }},
                {"one", {{{1, 1, 1, 1}}, {{1, 1, 1, 1}}, {{1, 1, 1, 1}}}, attend},
                {"one_key", {{{2, 3, 4}}, {{2, 1, 4}}, {{2, 1, 4}}}, attend},
                {"no_keys", {{{2, 3, 4}}, {{2, 0, 4}}, {{2, 0, 4}}}, attend},
                {"no_queries", {{{2, 0, 4}}, {{2, 3, 4}}, {{2, 3, 4}}}, attend},
                {"no_heads", {{{0, 3, 4}}, {{0, 3, 4}}, {{0, 3, 4}}}, attend},
                {"tiles", {{{70, 5}}, {{90, 5}}, {{90, 3}}}, attend},
                {"causal_tiles", {{{90, 5}}, {{70, 5}}, {{70, 3}}}, causal}},
    .workloads = {{"64x3x65x64", {{{64, 3, 65, 64}}, {{64, 3, 65, 64}}, {{64, 3, 65, 64}}}, attend},
                  {"16x3x197x64", {{{16, 3, 197, 64}}, {{16, 3, 197, 64}}, {{16, 3, 197, 64}}}, attend},
                  {"8x2048x64", {{{8, 2048, 64}}, {{8, 2048, 64}}, {{8, 2048, 64}}}, attend},
                  {"8x2048x64_causal", {{{8, 2048, 64}}, {{8, 2048, 64}}, {{8, 2048, 64}}}, causal}},
    .invalid = {{"dimensions", {{{3, 4}}, {{3, 5}}, {{3, 4}}}, attend},
                {"keys", {{{3, 4}}, {{3, 4}}, {{2, 4}}}, attend},
                {"heads", {{{2, 3, 4}}, {{3, 3, 4}}, {{3, 3, 4}}}, attend},
                {"rank", {{{2, 3, 4}}, {{3, 4}}, {{3, 4}}}, attend},
                {"vector", {{{4}}, {{4}}, {{4}}}, attend},
                {"no_dimensions", {{{3, 0}}, {{3, 0}}, {{3, 2}}}, attend},
                {"scale",
                 {{{3, 4}}, {{3, 4}}, {{3, 4}}},
                 [](const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2], false, -1.0); }}},
    .flops = attention_flops,
    .tolerance = 8,
}};

}  // namespace ringtape
