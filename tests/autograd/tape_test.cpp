// The tape: dependency counts, accumulation, hooks, in-place checks, checkpointing.
#include "autograd/tape.h"

#include <functional>
#include <sstream>

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "autograd/partial_grad.h"
#include "autograd/saved.h"
#include "autograd/trace.h"
#include "kernels/binary.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;
using test::same_bytes;
using test::values;
using Doubles = std::vector<double>;

Tensor leaf_of(const std::vector<double>& x) { return leaf(from_host(x, {int64_t(x.size())})); }

TEST(Tape, DifferentiatesAComposition) {
  const Tensor x = leaf_of({1, 2, 3});
  backward(sum(x * x + 2.0 * x));
  EXPECT_EQ(values(grad(x)), (Doubles{4, 6, 8}));
}

TEST(Tape, ATraceNotesOperationsWithoutGradients) {
  const NoGrad no_grad;
  const Tensor x = full({2, 3}, 1);
  const Tensor before = relu(x);
  OpTrace outer;
  const Tensor y = mean(x, {1}), z = y * 2.0;
  {
    OpTrace inner;
    relu(x);
    ASSERT_EQ(inner.ops().size(), 1u);
    EXPECT_EQ(inner.ops()[0].name, std::string("relu"));
  }
  ASSERT_EQ(outer.ops().size(), 2u);
  const TracedOp &a = outer.ops()[0], &b = outer.ops()[1];
  EXPECT_EQ(a.name, std::string("mean"));
  EXPECT_EQ(std::get<std::vector<int64_t>>(a.find("axes")->value), std::vector<int64_t>{1});
  EXPECT_EQ(std::get<int64_t>(a.find("keepdim")->value), 0);
  EXPECT_EQ(View(a.y).data, View(b.inputs[0]).data);
  EXPECT_EQ(View(b.y).data, View(z).data);
  EXPECT_TRUE(b.attributes.empty());
  EXPECT_EQ(b.find("axes"), nullptr);
}

TEST(Tape, AddsOverUsesOfOneTensorAndOverCalls) {
  const Tensor x = leaf_of({3});
  const Tensor y = x * x;  // both inputs are x
  backward(sum(y + y));
  EXPECT_EQ(values(grad(x)), Doubles{12});
  backward(sum(x * 5.0));
  EXPECT_EQ(values(grad(x)), Doubles{17});
  zero_grad(x);
  EXPECT_FALSE(grad(x).defined());
  backward(sum(x * 5.0));
  EXPECT_EQ(values(grad(x)), Doubles{5});
}

TEST(Tape, TheSameGraphTwiceAddsTheSameGradients) {
  const Tensor x = leaf_of({1, 2});
  const Tensor loss = sum(exp(x));
  backward(loss);
  const Doubles once = values(grad(x));
  backward(loss);
  EXPECT_EQ(values(grad(x)), (Doubles{2 * once[0], 2 * once[1]}));
}

TEST(Tape, FreesWhatNobodyElseHoldsAsItGoes) {
  constexpr int64_t kSize = 1 << 16, kBytes = kSize * 4, kLength = 10;
  const auto chain = [](Tensor y) {
    for (int64_t i = 0; i < kLength; ++i) y = exp(y * 0.5);
    return y;
  };
  const auto peak_of = [](Tensor loss, bool moves) {
    const int64_t before = memory_stats(Device{}).current;
    reset_peak_memory(Device{});
    moves ? backward(std::move(loss)) : backward(loss);
    return memory_stats(Device{}).peak - before;
  };
  const Tensor x = leaf(ones({kSize}));
  EXPECT_GE(peak_of(sum(chain(x)), false), 2 * kBytes);
  const Doubles once = values(grad(x));
  zero_grad(x);
  const int64_t before = memory_stats(Device{}).current;
  EXPECT_LT(peak_of(sum(chain(x)), true), 2 * kBytes);
  EXPECT_LT(memory_stats(Device{}).current, before + 2 * kBytes);  // the gradient
  EXPECT_EQ(values(grad(x)), once);

  zero_grad(x);
  const Tensor part = chain(x);  // somebody holds it
  backward(sum(part));
  backward(sum(part));
  Doubles twice = once;
  for (double& g : twice) g *= 2;
  EXPECT_EQ(values(grad(x)), twice);
}

TEST(Tape, GradientsOfTwoLeavesNeverShareMemory) {
  const Tensor a = leaf_of({1, 2}), b = leaf_of({3, 4});
  backward(sum(a + b));  // add passes dy on to both
  fill_(grad(a), 7);
  EXPECT_EQ(values(grad(b)), (Doubles{1, 1}));
}

TEST(Tape, LongChainsNeedNoStack) {
  const Tensor x = leaf_of({1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y + 1.0;
  backward(sum(y));
  EXPECT_EQ(values(grad(x)), Doubles{1});
  y = {};  // and destroying it does not either
}

TEST(Tape, RecordsNothingWithoutALeafOrInsideNoGrad) {
  EXPECT_FALSE(requires_grad(exp(ones({2}))));
  const Tensor x = leaf_of({1});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(requires_grad(exp(x)));
    {
      const EnableGrad recorded;
      EXPECT_TRUE(requires_grad(exp(x)));
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(requires_grad(exp(x)));
}

TEST(Tape, DetachStopsTheGradient) {
  const Tensor x = leaf_of({3});
  backward(sum(x * (x * x).detach()));
  EXPECT_EQ(values(grad(x)), Doubles{9});
}

TEST(Tape, HooksRunWhenTheirLeafIsFinalAndNotBefore) {
  std::vector<std::string> order;
  const Tensor first = leaf_of({1}), last = leaf_of({2});
  const Tensor h = first * 3.0;
  const Tensor between = record("between", {h}, h * 1.0, [&](const Tensor& dy) -> Tensors {
    order.push_back("between");
    return {dy};
  });
  const Tensor y = between * last;
  on_grad(last, [&](const Tensor& g) { order.push_back(concat("last ", g.item())); });
  on_grad(first, [&](const Tensor& g) { order.push_back(concat("first ", g.item())); });
  backward(sum(y + last));  // `last` has two uses: its hook sees the sum
  EXPECT_EQ(order, (std::vector<std::string>{"last 4", "between", "first 6"}));
}

TEST(Tape, KnowsExactlyWhichLeavesAreUsed) {
  const Tensor a = leaf_of({1}), b = leaf_of({2}), unused = leaf_of({3});
  const Tensor loss = sum(a * b);
  EXPECT_EQ(used_leaves(loss), (std::vector<NodePtr>{a.node(), b.node()}));
  backward(loss);
  EXPECT_FALSE(grad(unused).defined());
  EXPECT_TRUE(used_leaves(ones({1})).empty());
}

TEST(Tape, BranchesThatGetNoGradientStillCountAsDone) {
  // Of a maximum over parts of x one branch gets an undefined gradient from `stop`: x must still become final.
  const Tensor x = leaf_of({2});
  const Tensor stopped = record("stop", {x}, x * 1.0, [](const Tensor&) -> Tensors { return {Tensor()}; });
  int hooks = 0;
  on_grad(x, [&](const Tensor&) { ++hooks; });
  backward(sum(x * 3.0 + stopped));
  EXPECT_EQ(hooks, 1);
}

TEST(Tape, WritesFlatGradientsInPlaceAndAddsTheSecondTime) {
  const Tensor flat = full({6}, 99.0);
  const Tensor w = leaf(ones({2, 3}));
  w.node()->grad_slot = flat.window({2, 3}, {3, 1});
  const Tensor x = from_host(std::vector<float>{1, 2, 3}, {1, 3});
  backward(sum(linear(x, w)));
  EXPECT_EQ(values(flat), (Doubles{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(View(grad(w)).data, View(flat).data);
  backward(sum(linear(x, w)));
  EXPECT_EQ(values(flat), (Doubles{2, 4, 6, 2, 4, 6}));
  zero_grad(w);
  backward(sum(linear(x, w) + linear(x, w)));  // two contributions in one pass
  EXPECT_EQ(values(flat), (Doubles{2, 4, 6, 2, 4, 6}));
}

TEST(Tape, InPlaceWritesToASavedTensorAreNamed) {
  const Tensor x = leaf_of({1, 2});
  const Tensor y = exp(x);
  fill_(y.detach(), 0);
  const std::string message = message_of<AutogradError>([&] { backward(sum(y)); });
  EXPECT_NE(message.find("exp needs"), std::string::npos) << message;
  EXPECT_NE(message.find("fill_ has written"), std::string::npos) << message;
}

TEST(Tape, InPlaceWritesAreForLeavesInsideNoGrad) {
  const Tensor x = leaf_of({1, 2});
  EXPECT_NE(message_of<AutogradError>([&] { add_(x, x); }).find("add_"), std::string::npos);
  const NoGrad no_grad;
  add_(x, from_host(Doubles{1, 1}, {2}), -0.5);
  mul_(x, 2);
  EXPECT_EQ(values(x), (Doubles{1, 3}));
  copy_(x, from_host(Doubles{4}, {1}));
  EXPECT_EQ(values(x), (Doubles{4, 4}));
  const Tensor rows = from_host(Doubles{3, 4, 0, 2, 0, 0}, {3, 2}), want = l2_normalize(rows);
  l2_normalize_(rows);
  EXPECT_EQ(values(rows), values(want));
  EXPECT_NE(message_of<ShapeError>([&] { l2_normalize_(transpose(rows)); }).find("contiguous rows"), std::string::npos);
}

TEST(Tape, BackwardNamesWhatIsMissing) {
  EXPECT_NE(message_of<AutogradError>([] { backward(ones({1})); }).find("depends on no leaf"), std::string::npos);
  const Tensor x = leaf_of({1, 2});
  EXPECT_NE(message_of<ShapeError>([&] { backward(exp(x)); }).find("needs dloss"), std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] { backward(exp(x), ones({3})); }).find("(3,)"), std::string::npos);
  EXPECT_NE(message_of<DTypeError>([] { leaf(arange(3)); }).find("i64"), std::string::npos);
  EXPECT_NE(message_of<AutogradError>([&] { grad(exp(x)); }).find("not a leaf"), std::string::npos);
}

TEST(Tape, ALeafThatIsTwoInputsOfOneNodeGetsBothContributions) {
  const Tensor values_of = from_host(Doubles{1, 2, 3, 4}, {2, 2}), flat = zeros({4}, DType::f64);
  const Tensor plain = leaf(values_of), packed = leaf(values_of);
  packed.node()->grad_slot = flat.window({2, 2}, {2, 1});
  const Tensor dy = from_host(Doubles{1, 2, 5, 7}, {2, 2});  // makes different contributions
  backward(linear(plain, plain), dy);
  backward(linear(packed, packed), dy);
  EXPECT_EQ(values(grad(plain)), values(grad(packed)));
}

TEST(Tape, AFunctionAddsToAGradientThatNobodyElseHolds) {
  std::vector<Doubles> found;
  const auto adding = [&](const Tensor& x) {
    return record("adding", {x}, x * 1.0, [&](const Tensor& dy) -> Tensors {
      Tensor sum = partial_grad(0);
      found.push_back(sum.defined() ? values(sum) : Doubles{});
      if (!sum.defined()) return {dy};
      add_forward(sum, sum, dy);
      return {sum};
    });
  };
  const Tensor x = leaf_of({1, 2}), inside = x * 3.0;
  const Tensor added = adding(inside), doubled = inside * 2.0;
  backward(sum(added + doubled));  // the product's part comes first, of its own
  EXPECT_EQ(found, (std::vector<Doubles>{{2, 2}}));
  EXPECT_EQ(values(grad(x)), (Doubles{9, 9}));
  zero_grad(x), found.clear();
  const Tensor y = adding(inside), z = y + inside;  // the sum gives one tensor to both
  backward(sum(z));
  EXPECT_EQ(found, std::vector<Doubles>{{}});
  EXPECT_EQ(values(grad(x)), (Doubles{6, 6}));
}

TEST(Tape, ChecksWhatABackwardFunctionReturns) {
  const Tensor x = leaf_of({1, 2});
  const Tensor y = record("odd", {x}, x.detach(), [](const Tensor& dy) -> Tensors { return {sum(dy)}; });
  EXPECT_NE(message_of<Error>([&] { backward(sum(y)); }).find("odd: the gradient of input 0 has shape"),
            std::string::npos);
  EXPECT_NE(message_of<DTypeError>([&] { backward(exp(x), ones({2})); }).find("dloss is f32"), std::string::npos);
}

TEST(Tape, UndefinedTensorsAreNamed) {
  const Tensor x = leaf_of({1, 2}), none;
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { x + none; }, [&] { none + 1.0; }, [&] { less(none, 1.0); }, [&] { cast(none, DType::f32); },
           [&] { leaf(none); }, [&] { fill_(none, 1); }, [&] { matmul(x, none); }, [&] { relu(none); },
           [&] { none.copy_to(Device{}); }})
    EXPECT_NE(message_of<Error>(call).find("undefined"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { none.span<float>(); }).find("undefined"), std::string::npos);
}

TEST(InPlace, OverlapAndMisuse) {
  const Tensor x = reshape(arange(64 * 64, DType::f64), {64, 64});
  const Tensor want = contiguous(x + transpose(x));
  add_(x, transpose(x));
  EXPECT_TRUE(same_bytes(x, want));
  EXPECT_NE(message_of<ShapeError>([] { fill_(expand(ones({1}), {3}), 2); }).find("share memory"), std::string::npos);
  EXPECT_NE(message_of<DTypeError>([] { add_(arange(3), arange(3)); }).find("i64"), std::string::npos);
  const Tensor small = full({1}, 1e-3, DType::f16), large = full({1}, 6e4, DType::f16), sum = -large;
  mul_(small, 1e5), add_(sum, large, 2);  // the factors are beyond f16, and so is twice 60,000
  EXPECT_NEAR(small.item(), 100, 0.1);
  EXPECT_EQ(sum.item(), large.item());
  const Tensor w = leaf_of({1});
  EXPECT_NE(message_of<AutogradError>([&] { copy_(w, full({1}, 2, DType::f64)); }).find("copy_"), std::string::npos);
}

TEST(Numbers, AreNotRoundedToTheTensor) {
  EXPECT_TRUE(less(zeros({1}, DType::i64), 0.5).item());
  EXPECT_FALSE(equal(full({1}, 44, DType::u8), 300).item());
  const Tensor x = leaf(zeros({300, 300}, DType::f16));  // 90,000 is beyond f16
  backward(mean(x), full({}, 1024, DType::f16));
  EXPECT_NEAR(grad(x).data<f16>() ? float(grad(x).data<f16>()[0]) : 0, 1024.0 / 90000, 1e-4);
}

TEST(Tape, PrintsItsGraph) {
  const Tensor x = leaf_of({1});
  std::ostringstream out;
  print_graph(out, exp(x) * 2.0);
  const std::string text = out.str();
  EXPECT_NE(text.find(" mul <- #"), std::string::npos) << text;
  EXPECT_NE(text.find(" exp <- #"), std::string::npos) << text;
  EXPECT_NE(text.find(" leaf"), std::string::npos) << text;
  EXPECT_LT(text.find("mul"), text.find("exp"));
}

// A two-layer net with dropout, plain or with its first layer checkpointed.
struct Net {
  Tensor w1 = leaf(full({8, 4}, 0.1)), w2 = leaf(full({1, 8}, 0.2));
  Tensor x = leaf(rand({5, 4}));
  Tensor run(bool checkpointed) {
    const auto section = [this](const Tensors& in) { return dropout(tanh(linear(exp(in[0]), w1)), 0.5); };
    manual_seed(3);
    const Tensor h = checkpointed ? checkpoint(section, {x}) : section({x});
    return sum(square(linear(h, w2)));
  }
};

TEST(Checkpoint, GivesBitwiseTheSameGradients) {
  Net net;
  backward(net.run(false));
  const Tensor w1 = grad(net.w1), w2 = grad(net.w2), x = grad(net.x);
  for (const Tensor& t : {net.w1, net.w2, net.x}) zero_grad(t);
  int hooks = 0;
  on_grad(net.w1, [&](const Tensor&) { ++hooks; });
  const Tensor loss = net.run(true);
  const RandomState before = default_generator().state();
  backward(loss);
  EXPECT_EQ(default_generator().state().counter, before.counter);
  EXPECT_EQ(hooks, 1);
  EXPECT_TRUE(same_bytes(grad(net.w1), w1));
  EXPECT_TRUE(same_bytes(grad(net.w2), w2));
  EXPECT_TRUE(same_bytes(grad(net.x), x));
  backward(loss);  // and again: computed anew
  EXPECT_EQ(hooks, 2);
}

TEST(Checkpoint, CallsTheSectionOnceMoreAndKeepsLessMemory) {
  int calls = 0;
  const auto section = [&](const Tensors& in) {
    ++calls;
    Tensor y = in[0];
    for (int i = 0; i < 10; ++i) y = exp(y * 0.5);
    return y;
  };
  const auto held = [&](bool checkpointed) {
    const Tensor x = leaf(rand({1000, 100}));
    const int64_t before = memory_stats(Device{}).current;
    const Tensor y = checkpointed ? checkpoint(section, {x}) : section({x});
    const int64_t kept = memory_stats(Device{}).current - before;
    calls = 0;
    backward(sum(y));
    return kept;
  };
  const int64_t plain = held(false);
  EXPECT_EQ(calls, 0);
  const int64_t checkpointed = held(true);
  EXPECT_EQ(calls, 1);
  EXPECT_LT(checkpointed * 4, plain);
}

TEST(Checkpoint, WritesBetweenTheCallsAreNamed) {
  const Tensor x = leaf_of({3});
  const Tensor y = checkpoint([](const Tensors& in) { return square(in[0]); }, {x});
  {
    const NoGrad no_grad;
    mul_(x, 10);
  }
  EXPECT_NE(message_of<AutogradError>([&] { backward(sum(y)); }).find("mul_ has written"), std::string::npos);
}

TEST(Checkpoint, KeepsNothingAfterBackwardWhereNoInputNeedsAGradient) {
  const Tensor x = rand({1000, 100}), w = leaf(rand({100, 100}));
  const Tensor y = sum(checkpoint([&](const Tensors& in) { return exp(linear(in[0], w) * 0.01); }, {x}));
  backward(y);
  const int64_t held = memory_stats(Device{}).current;
  backward(y);
  EXPECT_EQ(memory_stats(Device{}).current, held);
  EXPECT_LT(held, 2 * 1000 * 100 * 4 + 500'000);
}

TEST(Checkpoint, ASectionThatChangesIsNamed) {
  const Tensor x = leaf_of({1, 2});
  int call = 0;
  const Tensor y = checkpoint([&](const Tensors& in) { return call++ == 0 ? exp(exp(in[0])) : in[0] * 1.0; }, {x});
  EXPECT_NE(message_of<AutogradError>([&] { backward(sum(y)); }).find("must do the same"), std::string::npos);
}

}  // namespace
}  // namespace ringtape
