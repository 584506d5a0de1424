// What makes the work of a step other than the recorded one: repeated all the same, it would train otherwise.
#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#include "train/loop/step.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::values;

// Its work depends on its form, and on a buffer that each step replaces.
struct Changing : nn::Module {
  nn::Linear first{12, 6}, second{6, 4};
  Tensor counted = zeros({1});
  int64_t now = 0;
  bool waits = false;  // the host reads a number within the step

  Tensor forward(const Tensor& x) override {
    counted = counted.detach() + 1;
    const Tensor seen = x.dtype() == DType::f32 ? x : cast(x, DType::f32);
    const Tensor h = tanh(first(seen)) * counted;
    if (waits) sum(h.detach()).item();
    return now == 1 ? slice(h, 1, 0, 4) : second(h);  // without a gradient for the second
  }
  int64_t form() const override { return now; }
  void visit(nn::Visitor& v) override {
    v.child("first", first), v.child("second", second);
    v.buffer("counted", counted);
  }
  std::string str() const override { return "Changing"; }
};

struct Shop {
  Changing model;
  std::unique_ptr<Step> step;
  std::vector<double> figures;

  explicit Shop(bool graph) {
    nn::move_to(model, kCuda);
    TrainOptions o;
    o.step.optimizer.name = "adam";
    step = std::make_unique<Step>(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution);
    if (graph) step->record_steps();
  }
  Tensor images(DType dtype = DType::f32) const {
    return cast(rand({5, 12}, -1, 1 + 3 * (dtype == DType::u8), DType::f32, kCuda), dtype);
  }
  Tensor labels() const { return cast(rand({5}, 0, 3.9, DType::f32, kCuda), DType::i64); }
  void run(const Tensor& x, const Labels& y, bool waits = false) {
    const auto ended = [&](StepPhase phase) {
      if (waits && phase == StepPhase::optimizer) model.counted.item();
    };
    figures.push_back(step->run(x, y, 0.05, ended).loss.item());
  }
  std::vector<double> state() const {
    std::vector<double> out = figures;
    for (const Tensor& t : step->replicated())
      for (const double v : values(t)) out.push_back(v);
    return out;
  }
};

using Each = std::function<void(Shop&, int i)>;
// What `each` trains in 12 steps is the same with a graph and without.
void expect_same(const Each& each, const char* what) {
  const auto trained = [&](bool graph) {
    manual_seed(3);
    Shop shop(graph);
    for (int i = 0; i < 12; ++i) each(shop, i);
    EXPECT_EQ(shop.step->count(), 12) << what;
    return shop.state();
  };
  EXPECT_EQ(trained(true), trained(false)) << what;
}

class StepForms : public test::OnCuda {};

TEST_F(StepForms, OfModules) {
  for (const int64_t other : {1, 2, -1})
    expect_same(
        [&](Shop& shop, int i) {
          shop.model.now = i / 2 == 2 || i > 8 ? other : 0;  // Adam's numbers of steps differ after form 1
          shop.run(shop.images(), shop.labels());
        },
        "forms");
}

TEST_F(StepForms, OfImages) {
  expect_same([](Shop& shop, int i) { shop.run(shop.images(i / 4 == 1 ? DType::f32 : DType::u8), shop.labels()); },
              "bytes and floats");
}

TEST_F(StepForms, OfLabels) {
  expect_same(
      [](Shop& shop, int i) {
        const Tensor x = shop.images(), y = shop.labels(), other = shop.labels();
        if (i / 4 == 1) shop.run(x, y);
        else shop.run(x, {y, other, 0.05 * i});
      },
      "mixed ones");
}

TEST_F(StepForms, OfBuffersThatOthersReplace) {
  expect_same(
      [](Shop& shop, int i) {
        if (i == 7) shop.model.counted = full({1}, 0.5, DType::f32, kCuda);
        shop.run(shop.images(), shop.labels());
      },
      "another buffer");
}

TEST_F(StepForms, ThatAreRefusedLeaveNothingBehind) {
  for (const bool late : {false, true})
    expect_same(
        [late](Shop& shop, int i) {
          shop.model.waits = !late && i < 6;
          shop.run(shop.images(), shop.labels(), late && i < 6);
        },
        late ? "waits after the update" : "waits within the model");
}

}  // namespace
}  // namespace ringtape
