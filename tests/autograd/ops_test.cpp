// What every op must satisfy, from its record alone.
#include "autograd/ops.h"

#include <cmath>
#include <set>

#include "autograd/gradcheck.h"
#include "tests/support/op_samples.h"

namespace ringtape {

namespace {

using test::expect_close;
using test::identical;
using test::Result;
using test::run;
using test::same_bytes;
using test::with_threads;

class EveryOp : public testing::TestWithParam<Op> {
 protected:
  // f(sample, its inputs in `dtype`) for each sample
  template <class F>
  void for_each_sample(DType dtype, F&& f) {
    for (const Sample& sample : GetParam().samples) {
      SCOPED_TRACE(sample.tag);
      f(sample, draw(sample, dtype, 1, GetParam().kinks));
    }
  }
};

TEST_P(EveryOp, GradientsMatchFiniteDifferences) {
  if (!GetParam().differentiable) return;
  for_each_sample(DType::f64, [&](const Sample& sample, const Tensors& inputs) {
    EXPECT_EQ(gradcheck(sample.call, inputs), "");
    GradcheckOptions fast;
    fast.fast_above = -1;
    EXPECT_EQ(gradcheck(sample.call, inputs, fast), "") << "fast mode";
  });
}

TEST_P(EveryOp, TakesAnyLayout) {
  for_each_sample(DType::f64, [&](const Sample& sample, const Tensors& inputs) {
    for (const auto& [name, layout] : test::kLayouts) {
      Tensors strided, dense;
      for (const Tensor& x : inputs) {
        strided.push_back(layout(x));
        dense.push_back(contiguous(strided.back()));
      }
      expect_close(run(GetParam(), sample, strided), run(GetParam(), sample, dense), 1e-12, 1e-12, name);
    }
  });
}

TEST_P(EveryOp, RepeatsBitForBitForAnyNumberOfThreads) {
  for_each_sample(DType::f32, [&](const Sample& sample, const Tensors& inputs) {
    const Result one = with_threads(1, [&] { return run(GetParam(), sample, inputs); });
    for (int threads : {1, 2, 3})
      EXPECT_TRUE(identical(one, with_threads(threads, [&] { return run(GetParam(), sample, inputs); })))
          << threads << " threads";
  });
}

TEST_P(EveryOp, AgreesBetweenDTypes) {
  const std::pair<DType, double> dtypes[] = {{DType::f32, 0x1p-23}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-10}};
  for (const auto& [dtype, eps] : dtypes)
    for_each_sample(dtype, [&, dtype = dtype, eps = eps](const Sample& sample, const Tensors& inputs) {
      Tensors exact;
      for (const Tensor& x : inputs) exact.push_back(is_float(x.dtype()) ? cast(x, DType::f64) : x);
      const double tolerance = 8 * eps * GetParam().tolerance;
      Result want = run(GetParam(), sample, exact);
      const Result got = run(GetParam(), sample, inputs);
      expect_close(got, want, tolerance, tolerance, std::string(name_of(dtype)));
    });
}

TEST_P(EveryOp, AgreesBetweenInstructionSets) {
  const CpuIsa before = cpu_isa();
  for_each_sample(DType::f32, [&](const Sample& sample, const Tensors& inputs) {
    set_cpu_isa(cpu_isas().front());
    const Result want = run(GetParam(), sample, inputs);
    for (const CpuIsa isa : cpu_isas()) {
      set_cpu_isa(isa);
      const double tolerance = 8 * 0x1p-23 * GetParam().tolerance;
      expect_close(run(GetParam(), sample, inputs), want, tolerance, tolerance, std::string(name_of(isa)));
    }
  });
  set_cpu_isa(before);
}

TEST_P(EveryOp, LeavesItsInputsAlone) {
  for_each_sample(DType::f32, [&](const Sample& sample, const Tensors& inputs) {
    const Tensors before = draw(sample, DType::f32, 1, GetParam().kinks);
    run(GetParam(), sample, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(same_bytes(inputs[i], before[i])) << "input " << i;
  });
}

TEST_P(EveryOp, RejectsWhatDoesNotFit) {
  for (const Sample& sample : GetParam().invalid) {
    SCOPED_TRACE(sample.tag);
    const std::string message = test::message_of<Error>([&] { sample.call(draw(sample, DType::f32, 1)); });
    EXPECT_EQ(message.find(GetParam().name), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST_P(EveryOp, RejectsMixedDTypes) {
  for (const Sample& sample : GetParam().samples) {
    Tensors inputs = draw(sample, DType::f32, 1, GetParam().kinks);
    if (inputs.size() < 2 || inputs[0].dtype() != DType::f32 || inputs[1].dtype() != DType::f32) continue;
    inputs[1] = cast(inputs[1], DType::f64);
    const std::string message = test::message_of<DTypeError>([&] { sample.call(inputs); });
    EXPECT_NE(message.find("f32 and f64"), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::ValuesIn(ops()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OpRegistry, KeepsEveryOp) {
  std::set<std::string> names;
  for (const Op& op : ops()) EXPECT_TRUE(names.insert(op.name).second) << op.name << " is registered twice";
  // The number when this line was last changed: raise it with every op that is added.
  EXPECT_GE(names.size(), 64u);
}

}  // namespace
}  // namespace ringtape
