// Teachers of which each rank holds a part: the bytes of whole ones, and what is gathered of them.
#include "train/strategy/sharded_teacher.h"

#include <gtest/gtest.h>

#include <mutex>

#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "core/part.h"
#include "nn/batch_norm.h"
#include "nn/ssl/teacher_weights.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/what_is_left.h"
#include "train/loop/model_state.h"
#include "train/model/methods.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

using comm::test::on_group;
using test::add_files, test::copy_of, test::expect_same;

constexpr int64_t kBatch = 12;

TrainOptions options_of(const std::string& method, const std::string& model, const std::string& strategy) {
  TrainOptions o;
  o.method.name = method, o.model.name = model, o.step.optimizer.name = "adam";
  test::set(o, {{"width", "4"},
                {"hidden", "40"},
                {"projection-hidden", "24"},
                {"projection-dim", "12"},
                {"prediction-hidden", "8"},
                {"queue", std::to_string(2 * kBatch)},
                {"momentum-encoder", "0.9"},
                {"momentum-encoder-end", "1"},
                {"weight-decay", "0.01"}});
  o.execution.deterministic = true;
  o.parallel.strategy.name = strategy, o.parallel.reducer.bucket_mb = 0.004;
  return o;
}

std::unique_ptr<nn::Method> make(const TrainOptions& o, DType dtype, int seed) {
  manual_seed(uint64_t(seed));
  auto method = make_method(method_plan(o), {{8, 8, 3}, 10, o.model.chosen()});
  if (dtype != DType::f32) nn::cast_to(*method, dtype);
  return method;
}

Tensors views(int step, const Part& own, DType dtype) {
  manual_seed(uint64_t(100 + step));
  Tensors out;
  for (int v = 0; v < 2; ++v) {
    const Tensor all = randn({kBatch, 8, 8, 3}, 0, 1, dtype);
    out.push_back(contiguous(slice(all, 0, own.begin, own.end)));
  }
  return out;
}

struct Training {
  std::string method = "byol", model = "resnet18", precision = "f32";
  DType dtype = DType::f32;
  double clip = 0, ema = 0;
  int64_t accumulate = 1;
  bool sync_bn = false, keeps = false, probe = false, writes = false;
  int64_t last = kBatch;  // images of the last step

  std::string str() const {
    return concat(method, " of ", model, ", ", precision, ", ", dtype, ", ema ", ema, ", accumulate ", accumulate,
                  sync_bn ? ", sync-bn" : "", keeps ? ", keeps" : "", probe ? ", probe" : "", ", last batch ", last);
  }

  // The bytes of all that it leaves, by name. Only rank 0 has files.
  test::Left run(comm::ProcessGroup& group, const std::string& strategy) const {
    set_threads(1);
    TrainOptions o = options_of(method, model, strategy);
    if (last < kBatch) test::set(o, {{"projection-norm", "none"}, {"prediction-norm", "none"}});
    o.step.clip_grad_norm = clip, o.step.ema = ema, o.step.accumulate = accumulate;
    o.execution.precision = precision, o.parallel.sync_bn = sync_bn;
    test::set(o, {{"keep-weights", keeps ? "true" : "false"}});
    o.evaluation.online_probe = probe;
    const auto net = make(o, dtype, 5);
    if (sync_bn) nn::synchronize_batch_norm(*net, &group);
    net->distribute(group);
    // loss_of() tells the spread of a rank's outputs, which one image does not have.
    const Objective alone = [&](const Tensors& images, const Labels&) -> Outcome {
      return {.loss = net->loss(net->outputs(images)), .auxiliary_loss = {}, .logits = {}, .spread = {}};
    };
    Step step(*net, last < kBatch ? alone : loss_of(*net, nullptr), o.step, o.execution, group, o.parallel);
    EXPECT_EQ(step.placement().sharded_teacher() != nullptr, strategy == "fsdp");
    test::Left out;
    for (int i = 0; i < 4; ++i) {
      const int64_t samples = i == 3 ? last : kBatch;
      const Part own = part_of(samples, group.size(), group.rank());
      if (writes && i == 2) write(*net);
      net->begin_step({i, 4, 0, 3});
      const Tensor labels = full({own.size()}, i, DType::i64);
      out.emplace(concat("loss ", i), step.run(views(i, own, dtype), labels, 0.01, {}, {samples}).loss);
    }
    step.exchange([&] {
      add_files(out, step);
      if (const auto* t = nn::teacher_of(*net)) out.emplace("read alone", copy_of(*t->pairs()[0].own));
    });
    for (const nn::Named& p : nn::named_parameters(*net)) out.emplace("weight " + p.name, copy_of(*p.tensor));
    for (const nn::TeacherWeights::Pair& p : nn::teacher_of(*net)->pairs())
      out.emplace(concat("teacher ", out.size()), copy_of(*p.own));
    return out;
  }
  // The same on all ranks, as a user may.
  static void write(nn::Method& net) {
    const NoGrad no_grad;
    const auto& pairs = nn::teacher_of(net)->pairs();
    mul_(*pairs.front().own, 0.5), mul_(*pairs.back().student, 2);
  }
};

void expect_same_bytes(comm::ProcessGroup& group, const Training& training, const std::string& strategy) {
  const auto whole = training.run(group, "ddp"), shared = training.run(group, strategy);
  expect_same(whole, shared, concat(strategy, " on ", group.size(), " ranks, ", training.str()));
}

#if defined(__SANITIZE_ADDRESS__)
const std::vector<int> kRanks = {3};  // it takes twenty times as long
#else
const std::vector<int> kRanks = {2, 3};
#endif

TEST(ShardedTeacher, HasTheBytesOfAWholeOne) {
  const std::vector<Training> all = {
      {},
      {.method = "moco", .keeps = true},
      {.precision = "bf16", .ema = 0.9},
      {.method = "moco", .precision = "f16", .clip = 0.5, .probe = true},
      {.dtype = DType::f64, .ema = 0.9, .sync_bn = true},
      {.model = "mlp", .accumulate = 2, .probe = true, .writes = true},
      {.model = "mlp", .keeps = true, .writes = true},
      {.model = "mlp", .ema = 0.5, .last = 1},  // the last rank has no images
      {.model = "mlp", .precision = "bf16", .keeps = true, .last = 1},
  };
  for (const int n : kRanks)
    EXPECT_SILENT(on_group(comm::test::kWorlds[0], n, [&](comm::ProcessGroup& group) {
      for (const Training& t : all) expect_same_bytes(group, t, "fsdp");
      expect_same_bytes(group, {}, "zero2");
    }));
}

TEST(ShardedTeacher, HasTheBytesOfAWholeOneOverEveryTransport) {
  for (const comm::test::World& world : comm::test::kWorlds)
    for (const int n : kRanks) {
      if (std::string(world.name) == "simulated") continue;  // as threads
      EXPECT_SILENT(on_group(world, n, [&](comm::ProcessGroup& group) {
        for (const char* method : {"byol", "moco"})
          expect_same_bytes(group, {.method = method, .model = "mlp", .ema = 0.9}, "fsdp");
      })) << world.name;
    }
}

// Ranks that begin with other weights continue with those of rank 0, as whole ones do after Trainer::share_state().
TEST(ShardedTeacher, BeginsWithTheFirstRanksWeights) {
  EXPECT_SILENT(on_group(comm::test::kWorlds[0], 2, [&](comm::ProcessGroup& group) {
    const TrainOptions o = options_of("byol", "mlp", "fsdp");
    const auto first = make(o, DType::f32, 5), net = make(o, DType::f32, 5 + group.rank());
    Step step(*net, loss_of(*net, nullptr), o.step, o.execution, group, o.parallel);
    const auto &expected = nn::teacher_of(*first)->pairs(), &pairs = nn::teacher_of(*net)->pairs();
    for (size_t i = 0; i < pairs.size(); ++i)
      if (!test::same_bytes(copy_of(*pairs[i].own), copy_of(*expected[i].own))) throw CommError(concat("weight ", i));
  }));
}

int64_t padded(const Tensor& x) { return (x.size() + 15) / 16 * 16; }

// Bytes that two steps gather: of the student, of the teacher. Each parameter is a bucket.
struct Gathered {
  int64_t student, teacher, all_of_student = 0, all_of_teacher = 0;
};
Gathered gathered_by_two_steps(comm::ProcessGroup& group, bool keeps, bool follows) {
  TrainOptions o = options_of("byol", "mlp", "fsdp");
  test::set(o, {{"keep-weights", keeps ? "true" : "false"}});
  o.parallel.reducer.bucket_mb = 1e-6;
  const auto net = make(o, DType::f32, 5);
  Step step(*net, loss_of(*net, nullptr), o.step, o.execution, group, o.parallel);
  const auto now = [&] {
    const Placement& p = step.placement();
    return Gathered{p.gathered_weights()->totals().bytes, p.sharded_teacher()->buffer().totals().bytes};
  };
  Gathered before{}, after{};
  for (int i = 0; i < 4; ++i) {
    if (i == 2) before = now();
    if (follows || i == 0) net->begin_step({i, 4, 0, 3});
    const Part own = part_of(kBatch, group.size(), group.rank());
    step.run(views(i, own, DType::f32), zeros({own.size()}, DType::i64), 0.01, {}, {kBatch});
  }
  after = now();
  Gathered out{after.student - before.student, after.teacher - before.teacher};
  for (const nn::Named& p : nn::named_parameters(*net)) out.all_of_student += padded(*p.tensor) * 4;
  for (const auto& p : nn::teacher_of(*net)->pairs()) out.all_of_teacher += padded(*p.own) * 4;
  return out;
}

// Its weights come once for each view's forward pass, or once a step; the student's as often as without it.
TEST(ShardedTeacher, GathersForItsForwardPassesOnly) {
  for (const bool keeps : {false, true})
    EXPECT_SILENT(on_group(comm::test::kWorlds[0], 2, [&](comm::ProcessGroup& group) {
      set_threads(1);
      const Gathered with = gathered_by_two_steps(group, keeps, true),
                     without = gathered_by_two_steps(group, keeps, false);
      const auto expect = [](const char* what, int64_t bytes, int64_t expected) {
        if (bytes != expected) throw CommError(concat(what, ": ", bytes, " bytes, expected ", expected));
      };
      expect("teacher", with.teacher, 2 * with.all_of_teacher * (keeps ? 1 : 2));
      expect("student, whether it is followed or not", with.student, without.student);
      if (keeps) expect("student", with.student, 2 * with.all_of_student);
    })) << keeps;
}

TEST(ShardedTeacher, RanksHoldEqualParts) {
  for (const int ranks : {1, 2, 3}) {
    std::mutex mutex;
    int64_t all = 0, most = 0, whole = 0;
    EXPECT_SILENT(on_group(comm::test::kWorlds[0], ranks, [&](comm::ProcessGroup& group) {
      TrainOptions o = options_of("byol", "resnet18", "fsdp");
      test::set(o, {{"width", "16"}});
      o.parallel.reducer.bucket_mb = 0.25;
      const auto net = make(o, DType::f32, 5);
      const ModelSize size = model_size(*net);
      Step step(*net, loss_of(*net, nullptr), o.step, o.execution, group, o.parallel);
      const auto expected = double(model_state_bytes(size, o.step, o.parallel, ranks));
      EXPECT_NEAR(double(step.state_bytes()), expected, 0.03 * expected);
      const std::lock_guard lock(mutex);
      const ShardedTeacher* const teacher = step.placement().sharded_teacher();
      const int64_t own = teacher ? teacher->own().size() : size.teacher;
      all += own, most = std::max(most, own), whole = 0;
      for (const auto& p : nn::teacher_of(*net)->pairs()) whole += ranks > 1 ? padded(*p.own) : p.own->size();
    }));
    EXPECT_EQ(all, whole) << ranks;
    EXPECT_LT(most, whole / ranks * 1.05) << ranks;
  }
}

TEST(Teacher, AveragesNothingBetweenTheTensors) {
  const Tensor from = arange(12, DType::f32) * 1.0, into = zeros({12});
  const auto cut = [](const Tensor& flat, std::initializer_list<std::pair<int64_t, int64_t>> parts) {
    Tensors out;
    for (const auto& [begin, size] : parts) out.push_back(flat.window({size}, {1}, begin));
    return out;
  };
  average_(cut(into, {{0, 3}, {3, 2}, {9, 1}}), cut(from, {{0, 3}, {3, 2}, {9, 1}}), 0.5);
  EXPECT_EQ(test::values(into), (std::vector<double>{0, 0.5, 1, 1.5, 2, 0, 0, 0, 0, 4.5, 0, 0}));
  const Tensor apart = zeros({12});
  average_(cut(apart, {{0, 3}, {6, 2}}), cut(from, {{0, 3}, {4, 2}}), 0.5);
  EXPECT_EQ(test::values(apart), (std::vector<double>{0, 0.5, 1, 0, 0, 0, 2, 2.5, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace ringtape
