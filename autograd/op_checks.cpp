#include "autograd/op_checks.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/memory_fill.h"
#include "core/parallel.h"
#include "kernels/arithmetic.h"
#include "kernels/conv2d.h"
#include "kernels/copy.h"
#include "kernels/cpu_isa.h"

namespace ringtape {

namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-50;
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    default: return 0x1p-8;
  }
}

// The value, and the gradients of the floating-point inputs; undefined if there is none.
struct Result {
  Tensor y;
  Tensors gradients;
};

// Calls the sample and, if it is differentiable, backward() with a fixed dL/dy, on the device of the inputs.
Result run(const Op& op, const Sample& sample, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& x : inputs) leaves.push_back(op.differentiable && is_float(x.dtype()) ? leaf(x) : x);
  Result r{sample.call(leaves), {}};
  if (requires_grad(r.y)) {
    const Tensor dy = cast(draw({"", {{r.y.shape()}}, {}}, DType::f64, 99)[0], r.y.dtype());
    backward(r.y, to(dy, r.y.device()));
  }
  for (const Tensor& x : leaves)
    if (requires_grad(x)) r.gradients.push_back(grad(x));
  return r;
}

std::vector<double> values(const Tensor& x) {
  const Tensor dense(x.shape(), DType::f64, x.device());
  copy(dense, x);
  const Tensor host = dense.copy_to(Device{});
  return {host.data<double>(), host.data<double>() + host.size()};
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const auto host = [](const Tensor& x) { return contiguous(x.detach()).copy_to(Device{}); };
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(View(host(a)).data, View(host(b)).data, size_t(a.size()) * size_of(a.dtype())) == 0;
}

// f(what, tensor of a, tensor of b) for the values and the gradients; returns its first text.
template <class F> std::string first_of(const Result& a, const Result& b, F&& f) {
  if (const std::string said = f(std::string("the value"), a.y, b.y); !said.empty()) return said;
  if (a.gradients.size() != b.gradients.size()) return "another number of gradients";
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    const std::string what = concat("gradient ", i);
    if (a.gradients[i].defined() != b.gradients[i].defined()) return what + " is there once and once not";
    if (!a.gradients[i].defined()) continue;
    if (const std::string said = f(what, a.gradients[i], b.gradients[i]); !said.empty()) return said;
  }
  return "";
}

// The largest |a - b| above tolerance (1 + |b|); NaN equals NaN.
std::string far_apart(const Result& a, const Result& b, double tolerance) {
  return first_of(a, b, [&](const std::string& what, const Tensor& p, const Tensor& q) -> std::string {
    if (p.shape() != q.shape()) return concat(what, " has shape ", p.shape(), ", expected ", q.shape());
    const std::vector<double> x = values(p), y = values(q);
    double worst = 1;
    size_t at = x.size();
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
      const double excess = std::fabs(x[i] - y[i]) / (tolerance * (1 + std::fabs(y[i])));
      if (!(excess <= worst)) worst = excess, at = i;
    }
    if (at == x.size()) return "";
    return concat("element ", at, " of ", what, " ", p.shape(), " is ", x[at], ", expected ", y[at]);
  });
}

std::string differ(const Result& a, const Result& b) {
  return first_of(a, b, [&](const std::string& what, const Tensor& p, const Tensor& q) {
    return same_bytes(p, q) ? "" : what + " has other bytes";
  });
}

// f(sample, its inputs in `dtype` on `device`) for each sample; returns its first text.
template <class F> std::string each_sample(const Op& op, DType dtype, Device device, F&& f) {
  for (const Sample& sample : op.samples) {
    Tensors inputs;
    for (const Tensor& x : draw(sample, dtype, 1, op.kinks)) inputs.push_back(to(x, device));
    if (const std::string said = f(sample, inputs); !said.empty())
      return concat("sample ", sample.tag, ", ", dtype, ": ", said);
  }
  return "";
}

// Sets something, and restores what was.
template <class T, class Set> struct Restored {
  T before;
  Set set;
  ~Restored() { set(before); }
};
template <class T, class Set> Restored(T, Set) -> Restored<T, Set>;

// f() with each instruction set; returns its first text.
template <class F> std::string each_isa(F&& f) {
  const Restored restored{cpu_isa(), set_cpu_isa};
  for (const CpuIsa isa : cpu_isas()) {
    set_cpu_isa(isa);
    if (const std::string said = f(); !said.empty()) return concat(name_of(isa), ": ", said);
  }
  return "";
}

std::string gradients(const Op& op, Device device) {
  if (!op.differentiable) return "";
  return each_sample(op, DType::f64, device, [&](const Sample& sample, const Tensors& inputs) {
    GradcheckOptions fast;
    fast.fast_above = -1;
    const std::string whole = gradcheck(sample.call, inputs);
    return whole.empty() ? gradcheck(sample.call, inputs, fast) : whole;
  });
}

std::string dtypes(const Op& op, Device device) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string said = each_sample(op, dtype, device, [&](const Sample& sample, const Tensors& inputs) {
      Tensors exact;
      for (const Tensor& x : inputs) exact.push_back(is_float(x.dtype()) ? cast(x, DType::f64) : x);
      return far_apart(run(op, sample, inputs), run(op, sample, exact), 8 * epsilon(dtype) * op.tolerance);
    });
    if (!said.empty()) return said;
  }
  return "";
}

std::string instruction_sets(const Op& op, Device device) {
  return each_sample(op, DType::f32, device, [&](const Sample& sample, const Tensors& inputs) {
    const Restored restored{cpu_isa(), set_cpu_isa};
    set_cpu_isa(cpu_isas().front());
    const Result want = run(op, sample, inputs);
    return each_isa([&] { return far_apart(run(op, sample, inputs), want, 8 * epsilon(DType::f32) * op.tolerance); });
  });
}

// What nobody has written is NaN, and an ordinary number: a maximum or a comparison could hide either one.
std::string written(const Op& op, Device device) {
  constexpr int kOther = 0x42;
  return each_isa([&]() -> std::string {
    for (const DType dtype : kFloats) {
      const std::string said = each_sample(op, dtype, device, [&](const Sample& sample, const Tensors& inputs) {
        const auto filled_with = [&](int byte) {
          const Restored restored{memory_fill(), set_memory_fill};
          set_memory_fill(byte);
          return run(op, sample, inputs);
        };
        const std::string how = differ(filled_with(kPoisonByte), filled_with(kOther));
        return how.empty() ? "" : how + " in memory that held others: not all is written";
      });
      if (!said.empty()) return said;
    }
    return "";
  });
}

std::string inputs_kept(const Op& op, Device device) {
  return each_sample(op, DType::f32, device, [&](const Sample& sample, const Tensors& given) -> std::string {
    const Tensors before = draw(sample, DType::f32, 1, op.kinks);
    run(op, sample, given);
    for (size_t i = 0; i < given.size(); ++i)
      if (!same_bytes(given[i], before[i])) return concat("input ", i, " is written");
    return "";
  });
}

// The message of the E that f throws; empty: none.
template <class E, class F> std::string refusal(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

std::string refusals(const Op& op, Device) {
  for (const Sample& sample : op.invalid) {
    const std::string message = refusal<Error>([&] { sample.call(draw(sample, DType::f32, 1)); });
    if (message.empty()) return concat("invalid call ", sample.tag, " is not refused");
    if (message.rfind(op.name, 0) != 0 || message.find('\n') != std::string::npos)
      return concat("invalid call ", sample.tag, " is refused with '", message, "'; expected a line that begins with ",
                    op.name);
  }
  return each_sample(op, DType::f32, {}, [&](const Sample& sample, Tensors given) -> std::string {
    if (given.size() < 2 || given[0].dtype() != DType::f32 || given[1].dtype() != DType::f32) return "";
    given[1] = cast(given[1], DType::f64);
    Tensor y;
    const std::string message = refusal<DTypeError>([&] { y = sample.call(given); });
    const bool promoted = y.defined() && (y.dtype() == DType::f64 || y.dtype() == DType::b8);
    if (promoted || message.find("f32 and f64") != std::string::npos) return "";
    return concat("operands of f32 and f64: expected f64, or a DTypeError that names both, got '", message, "'");
  });
}

std::string like_the_cpu(const Op& op, Device device) {
  // Winograd's transforms round operands of 16 bits once more.
  const bool exact = arithmetic().exact_convolutions;
  for (const DType dtype : kFloats) {
    // 16 bits are summed in f32: longer sums differ no more.
    const double factor = size_of(dtype) == 2 ? std::min(op.tolerance, 1.0) : op.tolerance;
    const ArithmeticScope scope(&Arithmetic::exact_convolutions, exact || size_of(dtype) == 2);
    const std::string said = each_sample(op, dtype, device, [&](const Sample& sample, const Tensors& given) {
      const Result got = run(op, sample, given);
      if (got.y.device() != device) return concat("the value is on ", got.y.device());
      return far_apart(got, run(op, sample, draw(sample, dtype, 1, op.kinks)), 8 * epsilon(dtype) * factor);
    });
    if (!said.empty()) return said;
  }
  return "";
}

Tensor permuted(const Tensor& x) {
  std::vector<int> order;
  for (int i = x.rank() - 1; i >= 0; --i) order.push_back(i);
  return permute(contiguous(permute(x, order)), order);
}

Tensor sliced(const Tensor& x) {
  Shape larger = x.shape();
  for (int i = 0; i < x.rank(); ++i) larger[i] = 2 * x.shape()[i] + 1;
  const Tensor all = zeros(larger, x.dtype(), x.device());
  Shape strides = all.strides();
  int64_t offset = 0;
  for (int i = 0; i < x.rank(); ++i) {
    offset += strides[i];
    strides[i] *= 2;
  }
  const Tensor out = all.window(x.shape(), strides, offset);
  copy(out, x);
  return out;
}

// Repeats the first element of the first axis with stride 0: other values.
Tensor repeated(const Tensor& x) {
  if (x.rank() == 0 || x.shape()[0] == 0) return x;
  return expand(slice(x, 0, 0, 1), x.shape());
}

std::string layouts(const Op& op, Device device) {
  const bool host = device.type == DeviceType::cpu;
  const DType dtype = host ? DType::f64 : DType::f32;
  const double tolerance = host ? 1e-12 : 8 * epsilon(dtype) * op.tolerance;
  const std::pair<const char*, Tensor (*)(const Tensor&)> known[] = {
      {"permuted", permuted}, {"sliced", sliced}, {"repeated", repeated}};
  return each_sample(op, dtype, Device{}, [&](const Sample& sample, const Tensors& given) -> std::string {
    for (const auto& [name, layout] : known) {
      Tensors strided, dense;  // the latter by the CPU: a GPU's copy of strided elements may be wrong in ops, too
      for (const Tensor& x : given) {
        strided.push_back(layout(to(x, device)));
        dense.push_back(contiguous(layout(x)));
      }
      const std::string said = far_apart(run(op, sample, strided), run(op, sample, dense), tolerance);
      if (!said.empty()) return concat(name, ": ", said);
    }
    return "";
  });
}

std::string repeats(const Op& op, Device device) {
  return each_sample(op, DType::f32, device, [&](const Sample& sample, const Tensors& given) -> std::string {
    const Restored restored{threads(), set_threads};
    if (device.type == DeviceType::cuda) return differ(run(op, sample, given), run(op, sample, given));
    set_threads(1);
    const Result one = run(op, sample, given);
    for (const int count : {1, 2, 3}) {
      set_threads(count);
      if (const std::string said = differ(run(op, sample, given), one); !said.empty())
        return concat(count, " threads: ", said);
    }
    return "";
  });
}

constexpr OpCheck kChecks[] = {
    {"gradients", gradients}, {"dtypes", dtypes},      {"instruction_sets", instruction_sets},
    {"written", written},     {"inputs", inputs_kept}, {"refusals", refusals},
    {"layouts", layouts},                              // from here on for GPUs, too
    {"repeats", repeats},     {"cpu", like_the_cpu}};  // only for GPUs

}  // namespace

std::span<const OpCheck> op_checks(DeviceType type) {
  const std::span<const OpCheck> all = kChecks;
  return type == DeviceType::cpu ? all.first(all.size() - 1) : all.last(3);
}

std::string check_op(const Op& op, Device device) {
  std::string out;
  for (const OpCheck& check : op_checks(device.type)) {
    std::string said;
    try {
      said = check.run(op, device);
    } catch (const std::exception& e) {
      said = e.what();
    }
    if (!said.empty()) out += concat(op.name, ": ", check.name, ": ", said, "\n");
  }
  return out;
}

}  // namespace ringtape
