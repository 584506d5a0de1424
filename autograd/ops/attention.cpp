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

// The heads (A, H, T, D) of one of `parts` parts of x (A, T, parts H D), as a view.
Tensor heads_of(const Tensor& x, int64_t heads, int64_t part = 0, int64_t parts = 1) {
  const Shape &s = x.shape(), &step = x.strides();
  const int64_t size = s[2] / (parts * heads);
  return x.window({s[0], heads, s[1], size}, {step[0], size * step[2], step[1], step[2]},
                  part * heads * size * step[2]);
}
// As x, with `columns` dimensions. Of heads (A, H, N, D) with memory (A, N, H, D): to put them side by side is a view.
Tensor beside_heads(const Tensor& x, int64_t columns) {
  const Shape& s = x.shape();
  if (x.rank() != 4) return Tensor(s.with(x.rank() - 1, columns), x.dtype(), x.device());
  return heads_of(Tensor({s[0], s[2], s[1] * columns}, x.dtype(), x.device()), s[1]);
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

static double factor_of(const char* op, std::optional<double> scale, int64_t dimensions) {
  const double out = scale.value_or(1 / std::sqrt(double(dimensions)));
  RT_CHECK_AS(UsageError, out > 0, op, ": scale ", out, " is not above 0");
  return out;
}

static Tensor lse_of(const Tensor& heads) {
  const Shape& s = heads.shape();
  return Tensor({s[0], s[1], s[2]}, wide_dtype(heads), heads.device());
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                    std::optional<double> scale) {
  constexpr const char* op = "scaled_dot_product_attention";
  if (const CastTo to = autocast(op, q, k, v)) return scaled_dot_product_attention(to(q), to(k), to(v), causal, scale);
  check_operands(q, k, v);
  const double factor = factor_of(op, scale, q.shape()[q.rank() - 1]);
  const Tensor y = beside_heads(q, v.shape()[v.rank() - 1]);
  const Tensor heads = as_heads(q), lse = lse_of(heads);
  attention_forward(as_heads(y), lse, heads, as_heads(k), as_heads(v), factor, causal);
  describe([&] { return OpAttributes{{"causal", int64_t(causal)}, {"scale", factor}}; });
  return record(op, {q, k, v}, y,
                [q = save(q), k = save(k), v = save(v), y = save(y), lse = save(lse), factor,
                 causal](const Tensor& dy) -> Tensors {
                  const auto like = [](const Tensor& x) { return beside_heads(x, x.shape()[x.rank() - 1]); };
                  const Tensor dq = like(*q), dk = like(*k), dv = like(*v);
                  attention_backward(as_heads(dq), as_heads(dk), as_heads(dv), as_heads(dy), as_heads(*y), *lse,
                                     as_heads(*q), as_heads(*k), as_heads(*v), factor, causal);
                  return {dq, dk, dv};
                });
}

namespace {

struct Heads {
  Tensor q, k, v;
  Heads(const Tensor& qkv, int64_t heads)
      : q(heads_of(qkv, heads, 0, 3)), k(heads_of(qkv, heads, 1, 3)), v(heads_of(qkv, heads, 2, 3)) {}
};

}  // namespace

Tensor self_attention(const Tensor& qkv, int64_t heads, bool causal, std::optional<double> scale) {
  constexpr const char* op = "self_attention";
  if (const CastTo to = autocast(op, qkv)) return self_attention(to(qkv), heads, causal, scale);
  check_float(qkv, op);
  RT_CHECK_AS(ShapeError, heads > 0 && qkv.rank() == 3 && qkv.shape()[2] > 0 && qkv.shape()[2] % (3 * heads) == 0, op,
              ": expected (A, T, 3 H D) with H = ", heads, " heads, got ", qkv.shape());
  const Shape shape = qkv.shape().with(2, qkv.shape()[2] / 3);
  const double factor = factor_of(op, scale, shape[2] / heads);
  const Tensor y(shape, qkv.dtype(), qkv.device());
  const Heads x(qkv.detach(), heads);
  const Tensor lse = lse_of(x.q);
  attention_forward(heads_of(y, heads), lse, x.q, x.k, x.v, factor, causal);
  describe([&] { return OpAttributes{{"heads", heads}, {"causal", int64_t(causal)}, {"scale", factor}}; });
  return record(op, {qkv}, y,
                [qkv = save(qkv), y = save(y), lse = save(lse), heads, factor, causal](const Tensor& dy) -> Tensors {
                  const Tensor dqkv((*qkv).shape(), dy.dtype(), dy.device());
                  const Heads x(*qkv, heads), dx(dqkv, heads);
                  attention_backward(dx.q, dx.k, dx.v, heads_of(dy, heads), heads_of(*y, heads), *lse, x.q, x.k, x.v,
                                     factor, causal);
                  return {dqkv};
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

static Tensor one_head(const Tensors& t) { return self_attention(t[0], 1); }
static Tensor two_heads(const Tensors& t) { return self_attention(t[0], 2); }
static double self_attention_flops(const Tensors& t, const Tensor& y) {
  return 4.0 * double(t[0].shape()[1]) * double(y.size());
}
static const RegisterOp register_self_attention{{
    .name = "self_attention",
    .samples = {{"two_heads", {{{2, 5, 24}}}, two_heads},
                {"one_head", {{{3, 4, 9}}}, one_head},
                {"causal", {{{2, 5, 12}}}, [](const Tensors& t) { return self_attention(t[0], 2, true); }},
                {"sharp", {{{2, 6, 12}, -4, 4}}, [](const Tensors& t) { return self_attention(t[0], 2, false, 1.0); }},
                {"tiles", {{{1, 70, 30}}}, two_heads},
                {"one", {{{1, 1, 3}}}, one_head},
                {"no_tokens", {{{2, 0, 12}}}, two_heads},
                {"none", {{{0, 3, 12}}}, two_heads}},
    .workloads = {{"64x65x192", {{{64, 65, 576}}}, [](const Tensors& t) { return self_attention(t[0], 3); }}},
    .invalid = {{"heads", {{{2, 3, 8}}}, two_heads},
                {"no_heads", {{{2, 3, 6}}}, [](const Tensors& t) { return self_attention(t[0], 0); }},
                {"rank", {{{3, 6}}}, one_head},
                {"no_width", {{{2, 3, 0}}}, one_head},
                {"scale", {{{2, 3, 6}}}, [](const Tensors& t) { return self_attention(t[0], 1, false, 0.0); }}},
    .flops = self_attention_flops,
    .tolerance = 8,
}};

}  // namespace ringtape
