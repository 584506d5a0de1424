// Self-supervised methods: what each step does, and that any number of ranks or replicas does the same.
#include <cmath>
#include <numeric>

#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "core/part.h"
#include "core/registry.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/loss/memory_bank.h"
#include "nn/loss/nt_xent.h"
#include "nn/ssl/queue.h"
#include "nn/ssl/teacher.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/loop/step.h"
#include "train/model/methods.h"
#include "train/settings/presets.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::values;

constexpr int64_t kBatch = 24;

TrainOptions small(const std::string& method) {
  TrainOptions o;
  o.method.name = method, o.model.name = test::model_for(method, "resnet18"), o.step.optimizer.name = "sgd";
  test::set(o, {{"width", "4"},
                {"heads", "1"},
                {"depth", "2"},
                {"decoder-width", "16"},
                {"decoder-heads", "2"},
                {"freeze-prototypes", "0"},
                {"projection-hidden", "24"},
                {"projection-dim", "12"},
                {"prediction-hidden", "8"},
                {"queue", std::to_string(2 * kBatch)},
                {"prototypes", "10"},
                {"momentum-encoder", "0.9"},
                {"barlow-statistics", "exact"},
                {"weight-decay", "0.001"}});
  return o;
}

std::unique_ptr<nn::Method> make(const TrainOptions& o, DType dtype) {
  manual_seed(5);
  auto method = make_method(method_plan(o), {{8, 8, 3}, 10, o.model.chosen()});
  if (dtype != DType::f32) nn::cast_to(*method, dtype);
  return method;
}

// Two views of the images of step i; no two are alike, and later ones are further out.
Tensors views(int step, DType dtype) {
  Tensors out;
  for (uint64_t v = 0; v < 2; ++v) {
    Tensor x({kBatch, 8, 8, 3}, DType::f32);
    for (int64_t n = 0; n < kBatch; ++n)
      for (int64_t i = 0; i < 192; ++i) {
        const float common = uniform_from_bits(philox(9, uint64_t(step), uint64_t(n * 192 + i)).x[0]);
        const float own = uniform_from_bits(philox(9, uint64_t(step), uint64_t(n * 192 + i)).x[1 + v]);
        x.data<float>()[n * 192 + i] = (1 + 0.05f * float(n)) * (common + 0.3f * own - 0.6f);
      }
    out.push_back(cast(x, dtype));
  }
  return out;
}

Tensors outputs_of(nn::Method& method, DType dtype) { return method.outputs(method.inputs(views(0, dtype))); }

double lr_of(const std::string& method) {
  return method == "mae" ? 0.2 : method == "vicreg" || method == "barlow_twins" ? 0.002 : 0.02;
}

using State = std::vector<std::pair<std::string, Tensor>>;

struct Training {
  std::string method, model = "resnet18";
  DType dtype = DType::f64;
  int steps = 10;
  void (*change)(TrainOptions&) = [](TrainOptions&) {};
};

// What there is after its steps. A group of one and no `replicas`: one device with all.
State train(const Training& t, comm::ProcessGroup& group, int replicas = 0) {
  const auto& [name, model, dtype, steps, change] = t;
  TrainOptions o = small(name);
  change(o);
  if (group.size() > 1) test::set(o, {{"gather-distributed", "true"}});
  o.model.name = test::model_for(name, model);
  o.parallel.sync_bn = group.size() > 1 || replicas > 0;
  o.parallel.reducer.bucket_mb = 0.01;
  const auto method = make(o, dtype);
  std::optional<nn::DataParallel> spread;
  comm::Devices devices;
  for (int i = 0; i < replicas; ++i) devices.push_back({DeviceType::cpu, i});
  if (replicas > 0)
    spread.emplace(
        *method, [&o, dtype = t.dtype]() -> std::unique_ptr<nn::Module> { return make(o, dtype); }, devices,
        nn::DataParallel::Options{.synchronize_batch_norm = true});
  if (group.size() > 1) nn::synchronize_batch_norm(*method, &group);
  method->distribute(group);
  Step step(*method, loss_of(*method, spread ? &*spread : nullptr), o.step, o.execution, group, o.parallel);
  if (method->fixes_prediction_lr()) step.fix_lr("prediction.", o.schedule.lr);
  for (int i = 0; i < steps; ++i) {
    const Part own = part_of(kBatch, group.size(), group.rank());
    Tensors images;
    for (const Tensor& x : views(i, dtype)) images.push_back(contiguous(slice(x, 0, own.begin, own.end)));
    method->begin_step({i, 10, i / 5, 3});
    step.run(images, full({own.size()}, 0, DType::i64), lr_of(name), {}, {kBatch});
  }
  State out;
  for (const nn::Named& p : nn::named_parameters(*method)) out.emplace_back(p.name, p.tensor->detach());
  for (const nn::Named& b : nn::named_buffers(*method))
    if (is_float(b.tensor->dtype())) out.emplace_back(b.name, b.tensor->detach());
  return out;
}

double apart(const State& a, const State& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = values(a[i].second), y = values(b[i].second);
    for (size_t j = 0; j < x.size(); ++j) difference += (x[j] - y[j]) * (x[j] - y[j]), size += y[j] * y[j];
  }
  return std::sqrt(difference / size);
}

class Methods : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Methods, testing::ValuesIn(names_of(nn::methods())),
                         [](const auto& info) { return info.param; });

void expect_same_over_ranks(const Training& training, double bound) {
  const State one = train(training, comm::alone());
  for (const int ranks : {2, 4}) {
    std::mutex mutex;
    const std::string cause =
        comm::test::kThreadWorlds[0].open(ranks, 1, comm::Seconds(60), [&](std::unique_ptr<comm::Transport> t) {
          set_threads(1);
          comm::ProcessGroup group(std::move(t));
          const State own = train(training, group);
          const std::lock_guard lock(mutex);
          EXPECT_LT(apart(own, one), bound) << ranks << " ranks";
        });
    EXPECT_EQ(cause, "");
  }
}

// In f32 rounding opens or closes ReLUs that are at 0, which a deep network makes much of
// after some steps: see strategies_test.cpp.
TEST_P(Methods, RanksTrainAsOneDeviceDoes) { expect_same_over_ranks({GetParam()}, 1e-9); }
TEST_P(Methods, RanksTrainAsOneDeviceDoesInF32) { expect_same_over_ranks({GetParam(), "mlp", DType::f32}, 1e-5); }
TEST_P(Methods, RanksTakeTheStepOfOneDeviceInF32) {
  expect_same_over_ranks({GetParam(), "resnet18", DType::f32, 1}, 1e-5);
}

TEST(OtherRecipes, RanksTrainAsOneDeviceDoes) {
  for (const char* name : {"moco", "simsiam", "swav"})
    expect_same_over_ranks(
        {name, "resnet18", DType::f64, 5,
         [](TrainOptions& o) {
           test::set(o, {{"queue-per-view", "true"}, {"fixed-prediction-lr", "true"}, {"projection-norm", "plain"}});
         }},
        1e-9);
}

TEST_P(Methods, ReplicasTrainAsOneDeviceDoes) {
  EXPECT_LT(apart(train({GetParam()}, comm::alone(), 2), train({GetParam()}, comm::alone())), 1e-9);
}

TEST_P(Methods, LossFallsAndReachesEveryParameter) {
  const TrainOptions o = small(GetParam());
  const auto method = make(o, DType::f32);
  Step step(*method, loss_of(*method, nullptr), o.step);
  double first = 0, last = 0;
  for (int i = 0; i < 40; ++i) {
    method->begin_step({i, 40, 0, 3});
    last = step.run(views(i % 2, DType::f32), full({kBatch}, 0, DType::i64), lr_of(GetParam())).loss.item();
    if (i < 2) first += last / 2;
    for (const nn::Named& p : nn::named_parameters(*method)) EXPECT_TRUE(grad(*p.tensor).defined()) << p.name;
  }
  EXPECT_LT(last, first - 0.02 * std::abs(first));
}

TEST_P(Methods, CollapsedLossIsThatOfEqualOutputs) {
  const auto method = make(small(GetParam()), DType::f64);
  const auto expected = method->collapsed_loss(kBatch);
  if (!expected) return;
  const bool prototypes = GetParam() == "swav" || GetParam() == "dino";  // outputs of 0 are as far from each of them
  Tensors outputs;
  for (const Tensor& y : outputs_of(*method, DType::f64))
    outputs.push_back(full(y.shape(), prototypes ? 0 : 1, DType::f64));
  for (const nn::Named& b : nn::named_buffers(*method))
    if (b.name == "queue" && !prototypes) *b.tensor = l2_normalize(ones(b.tensor->shape(), DType::f64));
  EXPECT_NEAR(method->loss(outputs).item(), *expected, 1e-9);
}

// What then says which step it was is the trainer.
TEST_P(Methods, OutputsThatAreNaNMakeALossThatIs) {
  const auto method = make(small(GetParam()), DType::f32);
  Tensors outputs;
  for (const Tensor& y : outputs_of(*method, DType::f32)) outputs.push_back(full(y.shape(), NAN));
  EXPECT_TRUE(std::isnan(method->loss(outputs).item()));
}

TEST_P(Methods, HasItsStateInItsBuffers) {
  const auto method = make(small(GetParam()), DType::f32);
  std::vector<std::string> names;
  for (const nn::Named& b : nn::named_buffers(*method)) names.push_back(b.name);
  const auto has = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const auto asks = [](const char* setting) {
    Settings own = nn::find_method(GetParam()).settings;
    return find_field(own, setting).has_value();
  };
  EXPECT_EQ(has("teacher.backbone.conv1.weight"), asks("momentum-encoder"));
  EXPECT_EQ(has("teacher.backbone.bn1.running_mean"), asks("momentum-encoder"));
  EXPECT_EQ(has("queue"), asks("queue"));
}

TEST(Teacher, FollowsAlongACosine) {
  const auto encoder = [] {
    return nn::Encoder{std::make_unique<nn::Linear>(3, 2), std::make_unique<nn::Linear>(2, 2)};
  };
  manual_seed(1);
  const nn::Encoder student = encoder();
  nn::Teacher teacher(student, encoder(), {0.9, 1.0});
  EXPECT_DOUBLE_EQ(teacher.momentum_at({0, 11}), 0.9);
  EXPECT_NEAR(teacher.momentum_at({5, 11}), 0.95, 1e-12);
  EXPECT_DOUBLE_EQ(teacher.momentum_at({10, 11}), 1);
  EXPECT_DOUBLE_EQ(nn::Teacher(student, encoder(), {0.9, -1}).momentum_at({7, 11}), 0.9);

  const Tensor x = randn({4, 3});
  expect_close(teacher(x), student(x).detach(), 1e-6, 1e-6, "begins as the student");
  const Tensor before = teacher(x);
  {
    const NoGrad no_grad;
    for (const nn::Named& p : nn::named_parameters(*student.projection)) fill_(*p.tensor, 0);
  }
  teacher.follow({0, 11});
  expect_close(teacher(x), before * 0.9, 1e-5, 1e-6, "a tenth of the projection is the student's");
  EXPECT_FALSE(requires_grad(teacher(x)));
}

TEST(Queue, KeepsTheNewest) {
  manual_seed(2);
  nn::Queue queue("moco", 6, 4);
  for (const double length : values(sum(queue.rows(0) * queue.rows(0), {1}))) EXPECT_NEAR(length, 1, 1e-6);
  const Tensor a = randn({2, 4}), b = randn({2, 4}), start = queue.rows(0);
  queue.push(nullptr, 0, a);
  queue.push(nullptr, 1, b);
  for (const size_t view : {0, 1})
    expect_close(queue.rows(view), concat({l2_normalize(b), l2_normalize(a), slice(start, 0, 0, 2)}), 0, 1e-7, "queue");
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { queue.push(nullptr, 0, randn({4, 4})); }), "--batch-size 4");
  EXPECT_MENTIONS(test::message_of<UsageError>([] { nn::Queue("moco", 0, 4); }), "at least 1");
}

TEST(Queue, OfEachViewKeepsItsOwn) {
  manual_seed(2);
  nn::Queue queue("moco", 4, 3, true);
  const Tensor a = randn({2, 3}), b = randn({2, 3}), starts[] = {queue.rows(0), queue.rows(1)};
  EXPECT_NE(values(starts[0]), values(starts[1]));
  queue.push(nullptr, 0, a);
  queue.push(nullptr, 1, b);
  expect_close(queue.rows(0), concat({l2_normalize(a), slice(starts[0], 0, 0, 2)}), 0, 1e-7, "first");
  expect_close(queue.rows(1), concat({l2_normalize(b), slice(starts[1], 0, 0, 2)}), 0, 1e-7, "second");
}

// A query's negatives are of the view that its key is of.
TEST(Moco, ComparesWithTheQueueOfTheKeysView) {
  TrainOptions o = small("moco");
  test::set(o, {{"queue-per-view", "true"}});
  const auto method = make(o, DType::f64);
  const auto queue = [&](const std::string& wanted) {
    for (const nn::Named& b : nn::named_buffers(*method))
      if (b.name == wanted) return b.tensor->detach();
    return Tensor();
  };
  const Tensor first = queue("queue"), second = queue("second_queue");
  const Tensors y = outputs_of(*method, DType::f64);
  const Tensor expected =
      (nn::memory_bank_loss(y[0], y[3], second, 0.1) + nn::memory_bank_loss(y[1], y[2], first, 0.1)) * 0.5;
  expect_close(method->loss(y), expected, 1e-12, 1e-12, "loss");
  expect_close(slice(queue("queue"), 0, 0, kBatch), l2_normalize(y[2]), 1e-12, 1e-12, "keys of the first view");
  expect_close(slice(queue("second_queue"), 0, 0, kBatch), l2_normalize(y[3]), 1e-12, 1e-12, "keys of the second view");
}

TEST(Swav, BalancesTheQueueFromItsEpochOn) {
  const auto loss_in = [](int64_t epoch, const char* first) {
    TrainOptions o = small("swav");
    test::set(o, {{"queue-epoch", first}});
    const auto method = make(o, DType::f64);
    method->begin_step({0, 10, epoch, 3});
    return method->loss(outputs_of(*method, DType::f64)).item();
  };
  EXPECT_EQ(loss_in(2, "2"), loss_in(2, "0"));
  EXPECT_NE(loss_in(1, "2"), loss_in(1, "0"));
}

// The positive of a prediction is the row of the queue, before this batch comes in, that is
// nearest to the other view's projection.
TEST(Nnclr, PredictsTheNearestNeighbour) {
  const auto method = make(small("nnclr"), DType::f64);
  const auto queue = [&] {
    for (const nn::Named& b : nn::named_buffers(*method))
      if (b.name == "queue") return b.tensor->detach();
    return Tensor();
  };
  const auto nearest = [bank = queue()](const Tensor& z) {
    Tensors out;
    const std::vector<double> x = values(l2_normalize(z)), rows = values(bank);
    const int64_t d = z.dim(1);
    for (int64_t i = 0; i < z.dim(0); ++i) {
      int64_t best = 0;
      const auto similarity = [&](int64_t k) {
        return std::inner_product(x.begin() + i * d, x.begin() + (i + 1) * d, rows.begin() + k * d, 0.0);
      };
      for (int64_t k = 1; k < bank.dim(0); ++k)
        if (similarity(k) > similarity(best)) best = k;
      out.push_back(slice(bank, 0, best, best + 1));
    }
    return concat(out);
  };
  const Tensors y = outputs_of(*method, DType::f64);
  const Tensor expected =
      (nn::nt_xent_loss(nearest(y[0]), y[3], 0.5) + nn::nt_xent_loss(nearest(y[1]), y[2], 0.5)) * 0.5;
  expect_close(method->loss(y), expected, 1e-12, 1e-12, "loss");
  expect_close(slice(queue(), 0, 0, kBatch), l2_normalize(y[1]), 1e-12, 1e-12, "projections of the second view");
}

// Predictions of 16 bits do not round the neighbour.
TEST(Nnclr, TheNeighbourKeepsItsDigits) {
  const auto loss = [](DType predictions) {
    const auto method = make(small("nnclr"), DType::f32);
    Tensors y = outputs_of(*method, DType::f32);
    for (size_t i : {2, 3}) y[i] = cast(cast(y[i], DType::bf16), predictions);
    return method->loss(y).item();
  };
  EXPECT_EQ(loss(DType::bf16), loss(DType::f32));
}

TEST(Heads, MayEndInNormalisationWithoutWeights) {
  TrainOptions o = small("simsiam");
  test::set(o, {{"projection-norm", "plain"}});
  const auto plain = make(o, DType::f64), all = make(small("simsiam"), DType::f64);
  const auto trains = [](nn::Method& method, const std::string& name) {
    const std::vector<nn::Named> parameters = nn::named_parameters(method);
    return std::any_of(parameters.begin(), parameters.end(), [&](const nn::Named& p) { return p.name == name; });
  };
  for (const char* last : {"projection.4.weight", "projection.4.bias"}) {
    EXPECT_TRUE(trains(*all, last));
    EXPECT_FALSE(trains(*plain, last));
  }
  EXPECT_TRUE(trains(*plain, "projection.1.weight"));
  const Tensors images = views(0, DType::f64), a = plain->outputs(images), b = all->outputs(images);
  for (size_t i = 0; i < a.size(); ++i) expect_close(a[i], b[i], 0, 0, "as weights of 1 and biases of 0");
  EXPECT_MENTIONS(test::message_of<UsageError>([] {
                    nn::make_head(2, {3, 4, "last"});
                  }),
                  "available: none hidden all plain");
}

TEST(Presets, MakeTheirMethods) {
  int made = 0;
  for (const Preset& preset : presets())
    for (const std::string& name : preset.self_supervised ? names_of(nn::methods()) : std::vector<std::string>()) {
      TrainOptions o;
      if (!has_recipe(preset.name, name)) {
        EXPECT_MENTIONS(test::message_of<UsageError>([&] { apply_settings(o, {read_preset(preset.name, name)}); }),
                        "no recipe for " + name);
        continue;
      }
      apply_settings(o, {read_preset(preset.name, name)});
      EXPECT_EQ(o.method.name, name);
      EXPECT_EQ(o.trainer.batch_size, std::string_view(preset.name) == "sololearn" ? 256 : 512);
      test::set(o, {{"width", "4"}, {"heads", "1"}});
      EXPECT_TRUE(make_method(method_plan(o), {{32, 32, 3}, 10, o.model.chosen()}));
      (void)resolve(o);
      ++made;
    }
  EXPECT_GE(made, 4 * 6 + 7);  // corrected has five more, lightly2023 two
  TrainOptions o;
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { (void)read_preset("seed00", "simclr"); }),
                  "did you mean seed000?");
  apply_settings(o, {read_preset("seed000", "moco")});
  EXPECT_EQ(o.schedule.lr, 0.06);
  EXPECT_EQ(option_text(o, "bn-splits"), "8");
  EXPECT_EQ(o.trainer.epochs, 100);
}

}  // namespace
}  // namespace ringtape
