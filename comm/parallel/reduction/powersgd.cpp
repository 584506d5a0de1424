#include "comm/parallel/reduction/powersgd.h"

#include <utility>

#include "comm/parallel/reduction/orthonormalize.h"
#include "comm/parallel/reduction/reductions.h"
#include "kernels/binary.h"
#include "kernels/compare.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/matmul.h"
#include "kernels/where.h"

namespace ringtape::comm {

namespace {

Tensor like(const Tensor& x, double value) {
  const Tensor y = empty_like(x);
  fill(y, value);
  return y;
}

// y (m, n) = a (m, k) w (k, n); any strides of a and w.
void multiply(const Tensor& y, const Tensor& a, const Tensor& w) {
  const auto batch = [](const Tensor& x) {
    return x.window({1, x.dim(0), x.dim(1)}, {x.size(), x.strides()[0], x.strides()[1]});
  };
  matmul_forward(batch(y), batch(a), batch(w));
}
Tensor transposed(const Tensor& x) { return x.window({x.dim(1), x.dim(0)}, {x.strides()[1], x.strides()[0]}); }

// PowerSGD (Vogels, Karimireddy and Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
// optimization", 2019): instead of a gradient M (rows, columns), two factors of rank r are sent, one step of the power
// method from the last step's factor:
//   M += e;  P = sum over ranks of M Q, orthonormalised;  Q = sum over ranks of M^T P;  M' = P Q^T;  e = M - P P^T M
// M' is the sum of M over the ranks without the sum of e, which is added in the next step: each rank keeps the part of
// its M outside the column space of P. (M - M' / ranks, as in PyTorch, has the same sum, but on each rank it grows by
// the differences between its data and that of others.) Gradients that are not matrices, or that are not much smaller
// as two factors of rank r, are sent uncompressed together with P. The first steps send all gradients uncompressed,
// because gradients change most then. P and Q are stored transposed.
class PowerSgd : public Reduction {
 public:
  PowerSgd(ProcessGroup& group, Gradients gradients, const PowerSgdOptions& options);
  void proceed() override;
  void finish() override;

 private:
  struct Matrix {
    Tensor m, users;      // (rows, columns), ()
    Tensor p, q;          // (r, rows), (r, columns): views of the packets
    Tensor drawn, error;  // initial value of q; the part of M that has not been sent
  };
  struct Other {
    Tensor gradient, sent;  // (n); its place in a packet
  };
  void begin() override;
  static void keep_error(const Matrix& x, const Tensor& q);
  static void renew(const Matrix& x);

  const Tensor all_;
  Tensor first_, second_;  // packets: all P and the uncompressed gradients; all Q
  std::vector<Matrix> matrices_;
  std::vector<Other> others_;
  int64_t uncompressed_;  // remaining uncompressed steps
  bool compressed_ = false;
};

bool pays(const Shape& shape, int64_t r) {
  if (shape.rank() < 2 || shape.size() == 0) return false;
  const int64_t rows = shape[0], columns = shape.size() / rows;
  return (rows + columns) * r < rows * columns;
}

PowerSgd::PowerSgd(ProcessGroup& group, Gradients gradients, const PowerSgdOptions& options)
    : Reduction(group), all_(gradients.all), uncompressed_(options.start) {
  const int64_t r = options.rank;
  RT_CHECK_AS(UsageError, r >= 1, "powersgd: rank ", r, "; expected at least 1");
  RT_CHECK_AS(DTypeError, size_of(all_.dtype()) >= 4, "powersgd: gradients are ", all_.dtype(),
              "; expected f32 or f64");
  int64_t first = 0, second = 0;
  for (const Gradients::Member& member : gradients.members) {
    const Shape& shape = member.gradient.shape();
    const bool low = pays(shape, r);
    first += low ? r * shape[0] : shape.size();
    second += low ? r * (shape.size() / shape[0]) : 0;
  }
  if (second == 0) return;
  first_ = group.allocate({first}, all_.dtype());
  second_ = group.allocate({second}, all_.dtype());
  first = second = 0;
  const auto next = [r](const Tensor& packet, int64_t& at, int64_t n) {
    return packet.window({r, n}, {n, 1}, std::exchange(at, at + r * n));
  };
  for (const Gradients::Member& member : gradients.members) {
    const Tensor& g = member.gradient;
    if (!pays(g.shape(), r)) {
      others_.push_back({g.window({g.size()}, {1}), first_.window({g.size()}, {1}, first)});
      first += g.size();
      continue;
    }
    const int64_t rows = g.dim(0), columns = g.size() / rows;
    const Tensor drawn({r, columns}, g.dtype(), g.device()), q = next(second_, second, columns);
    fill_normal(drawn, {0, Stream::powersgd, uint64_t(member.place)}, 0, 1);
    copy(q, drawn);
    matrices_.push_back({.m = g.window({rows, columns}, {columns, 1}),
                         .users = member.users,
                         .p = next(first_, first, rows),
                         .q = q,
                         .drawn = drawn,
                         .error = zeros({rows, columns}, g.dtype(), g.device())});
  }
}

void PowerSgd::begin() {
  compressed_ = uncompressed_ == 0 && !matrices_.empty();
  if (uncompressed_ > 0) --uncompressed_;
  if (!compressed_) return send(all_);
  for (const Matrix& x : matrices_) {
    add_forward(x.m, x.m, x.error);
    multiply(x.p, x.q, transposed(x.m));
  }
  for (const Other& x : others_) copy(x.sent, x.gradient);
  send(first_);
}

void PowerSgd::proceed() {
  if (!compressed_) return;
  wait();
  Tensors parts;
  for (const Matrix& x : matrices_) {
    orthonormalize(x.p);
    multiply(x.q, x.p, x.m);
    parts.push_back(empty_like(x.q));
    copy(parts.back(), x.q);
  }
  send(second_);
  for (size_t i = 0; i < parts.size(); ++i) keep_error(matrices_[i], parts[i]);
}

void PowerSgd::finish() {
  wait();
  if (!compressed_) return;
  for (const Other& x : others_) copy(x.gradient, x.sent);
  for (const Matrix& x : matrices_) {
    multiply(x.m, transposed(x.p), x.q);
    renew(x);
  }
}

// q: this rank's part of the sum. If no rank has the gradient, the sum is not used, and all of M is kept. A sum that is
// not finite, such as after an overflow of f16, gives NaNs in P: then no error is kept.
void PowerSgd::keep_error(const Matrix& x, const Tensor& q) {
  const Tensor length = square_rows(q.window({1, q.size()}, {q.size(), 1})), zero = like(length, 0);
  const Tensor finite(length.shape(), DType::b8, length.device());
  sub_forward(length, length, length);
  equal_forward(finite, length, zero);
  const Tensor used = empty_like(x.users);
  minimum_forward(used, x.users, like(used, 1));
  mul_forward(q, q, used);
  multiply(x.error, transposed(x.p), q);
  sub_forward(x.error, x.m, x.error);
  where_forward(x.error, finite, x.error, zero);
}

// The next step begins with this step's Q; rows of it that have become zero get their initial values.
void PowerSgd::renew(const Matrix& x) {
  orthonormalize(x.q);
  const Tensor length = square_rows(x.q), there(length.shape(), DType::b8, length.device());
  greater_forward(there, length, like(length, 0.5));
  where_forward(x.q, there, x.q, x.drawn);
}

}  // namespace

void visit(Fields& f, PowerSgdOptions& o) {
  f("powersgd-rank", o.rank, {.help = "rank of the low-rank matrices that are sent", .unit = "N", .range = kPositive});
}

std::unique_ptr<Reduction> make_powersgd(ProcessGroup& group, Gradients gradients, const Settings& settings) {
  return std::make_unique<PowerSgd>(group, std::move(gradients), settings.as<PowerSgdOptions>());
}

}  // namespace ringtape::comm
