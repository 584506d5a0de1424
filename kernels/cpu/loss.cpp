#include "kernels/loss.h"

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

namespace {

// Elements of whole vectors of every instruction set, also if the compiler unrolls the loop. n is a multiple of it: the
// digits of an element would else depend on whether it is in a loop's vectors or its rest.
constexpr int64_t kLossWidth = 64;

template <class C, class F> void loss_block(C* out, const C* x, const C* t, const C* q, int64_t n) {
  RT_IVDEP
  for (int64_t i = 0; i < n; ++i) out[i] = F::of(x[i], t[i], q[i]);
}

template <class C> using LossBlock = void (*)(C* out, const C* x, const C* t, const C* q, int64_t n);

// mse_value::of(x, t, q) and so on.
#define RT_LOSS_PART(part, expression)                                                                           \
  struct part {                                                                                                  \
    template <class T> RT_INLINE static T of([[maybe_unused]] T x, [[maybe_unused]] T t, [[maybe_unused]] T q) { \
      using M [[maybe_unused]] = Math;                                                                           \
      return expression;                                                                                         \
    }                                                                                                            \
  };
#define X(name, value, dx, dt)      \
  RT_LOSS_PART(name##_value, value) \
  RT_LOSS_PART(name##_to_input, dx) \
  RT_LOSS_PART(name##_to_target, dt)
RT_LOSSES(X)
#undef X
#undef RT_LOSS_PART

template <class C> LossBlock<C> loss_block_of(Loss loss, LossPart part) {
  constexpr LossBlock<C> table[][3] = {
#define X(name, ...) {loss_block<C, name##_value>, loss_block<C, name##_to_input>, loss_block<C, name##_to_target>},
      RT_LOSSES(X)
#undef X
  };
  return table[int(loss)][int(part)];
}

// The operands of a loss in the compute type C, block by block. Their order: x, t, q, w, dy.
template <class C> class LossOperands {
  static constexpr size_t kOperands = 5;

 public:
  LossOperands(const View& x, const View& t, const View& w, const View& q, const LossRule& rule, LossPart part,
               const View& dy = {})
      : f_(loss_block_of<C>(rule.loss, part)), n_(x.size()), q_(C(rule.q)), one_(1), weighted_(w.data || dy.data),
        operands_(operands_of(std::array<View, 5>{x, t, q.data ? q : same(x, &q_), w.data ? w : same(x, &one_),
                                                  dy.data ? dy : same(x, &one_)})) {}

  // A thread's blocks.
  class Reader {
   public:
    explicit Reader(const LossOperands& all) : all_(all) {
      for (size_t k = 0; k < kOperands; ++k)
        if (all.operands_[k].constant) load(k, 0, std::min(kBlock, all.n_));
    }
    // Writes w dy f of `n` <= kBlock elements, in C, to `out`, which has room for kBlock.
    void read(C* out, int64_t begin, int64_t n) {
      for (size_t k = 0; k < kOperands; ++k)
        if (!all_.operands_[k].constant) load(k, begin, n);
      all_.f_(out, at_[0], at_[1], at_[2], whole(n));
      const C *const w = at_[3], *const dy = at_[4];
      if (all_.weighted_)
        for (int64_t i = 0; i < n; ++i) out[i] *= w[i] * dy[i];
    }

   private:
    static int64_t whole(int64_t n) { return (n + kLossWidth - 1) / kLossWidth * kLossWidth; }
    // `n` elements, and zeros as far as whole vectors go.
    void load(size_t k, int64_t begin, int64_t n) {
      C* const buffer = buffers_[k];
      at_[k] = all_.operands_[k].load(begin, n, buffer);
      if (n == whole(n)) return;
      if (at_[k] != buffer) std::copy_n(at_[k], n, buffer);
      std::fill(buffer + n, buffer + whole(n), C(0));
      at_[k] = buffer;
    }

    const LossOperands& all_;
    const C* at_[kOperands] = {};
    alignas(kVectorBytes) C buffers_[kOperands][kBlock];
  };

 private:
  // The number `at` for each element of x.
  static View same(View x, C* at) {
    x.data = at;
    x.dtype = dtype_of<C>::value;
    std::fill_n(x.strides, x.rank, 0);
    return x;
  }

  LossBlock<C> f_;
  int64_t n_;
  C q_, one_;
  bool weighted_;
  std::array<Operand, kOperands> operands_;
};

// f(first element, number of elements, a reader) for each block of n elements.
template <class C, class F> void for_each_loss_block(int64_t n, const LossOperands<C>& operands, const F& f) {
  parallel_for((n + kBlock - 1) / kBlock, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    typename LossOperands<C>::Reader reader(operands);
    for (int64_t at = begin * kBlock; at < std::min(n, end * kBlock); at += kBlock)
      f(at, std::min(kBlock, n - at), reader);
  });
}

}  // namespace

void loss_forward(View y, View x, View t, View w, View q, LossRule rule) {
  const int64_t n = x.size();
  dispatch_compute(x.dtype, [&]<class C>() {
    C* const out = y.as<C>();
    if (n == 0) {
      if (y.size() == 1) *out = C(0 / rule.divisor);
      return;
    }
    const LossOperands<C> operands(x, t, w, q, rule, LossPart::value);
    if (y.size() == n && rule.divisor == 1) {
      for_each_loss_block(n, operands, [out](int64_t at, int64_t count, auto& reader) {
        if (count == kBlock) return reader.read(out + at, at, count);
        C block[kBlock];
        reader.read(block, at, count);
        std::copy_n(block, count, out + at);
      });
      return;
    }
    constexpr int64_t chunk = 64 * kBlock;  // fixed, so that threads do not change the order
    const int64_t chunks = (n + chunk - 1) / chunk;
    std::vector<double> part(static_cast<size_t>(chunks));
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      typename LossOperands<C>::Reader reader(operands);
      C block[kBlock];
      for (int64_t c = begin; c < end; ++c)
        for (int64_t at = c * chunk; at < std::min(n, (c + 1) * chunk); at += kBlock) {
          const int64_t count = std::min(kBlock, n - at);
          reader.read(block, at, count);
          part[size_t(c)] += row_sum<double>(count, [&block](int64_t i) { return double(block[i]); });
        }
    });
    double total = 0;
    for (double v : part) total += v;
    *out = C(total / rule.divisor);
  });
}

void loss_backward(View dto, View dy, View x, View t, View w, View q, LossRule rule, LossPart part) {
  const int64_t n = x.size();
  if (n == 0) return;
  dispatch_compute(x.dtype, [&]<class C>() {
    const LossOperands<C> operands(x, t, w, q, rule, part, dy);
    const C scale = C(1 / rule.divisor);
    const Operand to = operands_of(std::array<View, 1>{dto})[0];
    C* const direct = dto.dtype == dtype_of<C>::value ? dto.as<C>() : nullptr;
    for_each_loss_block(n, operands, [scale, direct, &to](int64_t at, int64_t count, auto& reader) {
      C block[kBlock];
      reader.read(block, at, count);
      C* const scaled = direct ? direct + at : block;
      for (int64_t i = 0; i < count; ++i) scaled[i] = block[i] * scale;
      if (!direct) to.store(at, count, block);
    });
  });
}

RT_ISA_END
