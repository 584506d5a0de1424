// What every op must satisfy, from its record alone.
#include "autograd/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "autograd/tape.h"
#include "kernels/copy.h"
#include "kernels/cpu_isa.h"
#include "tests/support/op_checks.h"
#include "tests/support/support.h"

namespace ringtape {

namespace {

class EveryOp : public testing::TestWithParam<test::OpCase> {};

TEST_P(EveryOp, Passes) { EXPECT_EQ(GetParam().check->run(*GetParam().op, Device{}), ""); }

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::ValuesIn(test::op_cases(DeviceType::cpu)), test::name_of_case);

// f, which should double its input.
Op doubling(Tensor (*f)(const Tensors&)) { return {.name = "twice", .samples = {{"odd", {{{3, 5}}}, f}}}; }
Tensor twice(const Tensor& x, double slope) {
  return record("twice", {x}, (x * 2).detach(), [slope](const Tensor& dy) -> Tensors { return {dy * slope}; });
}

TEST(OpChecks, FindWhatIsWrong) {
  const auto said_of = [](Tensor (*f)(const Tensors&)) { return check_op(doubling(f)); };
  EXPECT_EQ(said_of([](const Tensors& t) { return twice(t[0], 2); }), "");
  EXPECT_MENTIONS(said_of([](const Tensors& t) { return twice(t[0], 3); }), "twice: gradients: sample odd, f64: ");
  EXPECT_MENTIONS(said_of([](const Tensors& t) {
                    return t[0].dtype() == DType::f32 ? cast(cast(t[0], DType::bf16), DType::f32) : t[0];
                  }),
                  "twice: dtypes: sample odd, f32: element ");
  EXPECT_MENTIONS(said_of([](const Tensors& t) { return empty_like(t[0]); }), "not all is written");
  EXPECT_MENTIONS(said_of([](const Tensors& t) {
                    copy(t[0].detach(), (t[0] * 2).detach());
                    return twice(t[0], 2);
                  }),
                  "twice: inputs: sample odd, f32: input 0 is written");
  EXPECT_MENTIONS(said_of([](const Tensors& t) {
                    const Tensor y = empty_like(t[0]);  // as if the elements of t[0] lay side by side
                    std::memcpy(View(y).data, View(t[0]).data, size_t(y.size()) * size_of(y.dtype()));
                    return y;
                  }),
                  "twice: layouts: sample odd, f64: permuted: ");
  EXPECT_MENTIONS(said_of([](const Tensors& t) { return t[0].detach() * double(threads()); }),
                  "twice: repeats: sample odd, f32: 2 threads: the value has other bytes");
  EXPECT_EQ(said_of([](const Tensors& t) {
              return t[0] * (cpu_isa() == CpuIsa::portable ? 2.0 : 3.0);
            }).find("twice: instruction_sets: sample odd, f32: ") != std::string::npos,
            cpu_isas().front() == CpuIsa::portable && cpu_isas().size() > 1);
  Op lenient = doubling([](const Tensors& t) { return twice(t[0], 2); });
  lenient.invalid = {{"all", {{{3}}}, [](const Tensors& t) { return twice(t[0], 2); }}};
  EXPECT_EQ(check_op(lenient), "twice: refusals: invalid call all is not refused\n");
}

// An op without such samples has them refused.
TEST(OpRegistry, EveryOpHasASampleWithoutElements) {
  const auto empty = [](const Sample& sample) {
    return std::any_of(sample.inputs.begin(), sample.inputs.end(), [](const Input& i) { return i.shape.size() == 0; });
  };
  for (const Op& op : ops())
    EXPECT_TRUE(std::any_of(op.samples.begin(), op.samples.end(), empty) ||
                std::any_of(op.invalid.begin(), op.invalid.end(), empty))
        << op.name;
}

TEST(OpRegistry, KeepsEveryOp) {
  std::set<std::string> names;
  for (const Op& op : ops()) EXPECT_TRUE(names.insert(op.name).second) << op.name << " is registered twice";
  // The number when this line was last changed: raise it with every op that is added.
  EXPECT_GE(names.size(), 139u);
}

}  // namespace
}  // namespace ringtape
