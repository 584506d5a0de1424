#include "autograd/op.h"

#include <cmath>

#include "core/random.h"

namespace ringtape {

std::vector<Op>& ops() {
  static std::vector<Op> registry;
  return registry;
}

RegisterOp::RegisterOp(Op op) { ops().push_back(std::move(op)); }

Samples::Samples(std::initializer_list<SampleRecord> records) {
  for (const auto& [tag, inputs, call] : records) {
    Sample& sample = emplace_back(Sample{tag, {}, call});
    for (const auto& [shape, low, high, fill] : inputs) sample.inputs.push_back({Shape(shape), low, high, fill});
  }
}

// 53 random bits in [0, 1).
static double uniform(uint64_t seed, uint64_t input, int64_t element) {
  const Philox4 r = philox(seed, uint64_t(Stream::test) | input << 8, uint64_t(element));
  return double((uint64_t(r.x[0]) << 32 | r.x[1]) >> 11) * 0x1p-53;
}

// Finite differences use steps of about 1e-6; a hundred times that is a safe distance from a kink.
static double away_from(const std::vector<double>& kinks, double x) {
  constexpr double gap = 1e-4;
  for (double kink : kinks)
    if (std::fabs(x - kink) < gap) return kink + (x < kink ? -gap : gap);
  return x;
}

Tensors draw(const Sample& sample, DType dtype, uint64_t seed, const std::vector<double>& kinks) {
  Tensors out;
  for (const Input& in : sample.inputs) {
    const DType stored = in.fill == Fill::real ? dtype : in.fill == Fill::index ? DType::i64 : DType::b8;
    Tensor x(in.shape, stored);
    for (int64_t i = 0; i < x.size(); ++i) {
      const double u = uniform(seed, out.size(), i), value = in.low + (in.high - in.low) * u;
      if (in.fill == Fill::index) x.data<int64_t>()[i] = int64_t(std::floor(value));
      else if (in.fill == Fill::mask) x.data<bool>()[i] = u < 0.5;
      else dispatch_float(dtype, [&]<class T>() { x.data<T>()[i] = T(compute_t<T>(away_from(kinks, value))); });
    }
    out.push_back(x);
  }
  return out;
}

}  // namespace ringtape
