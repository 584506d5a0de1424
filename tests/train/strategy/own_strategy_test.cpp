// A strategy of one's own: its row, and where it puts the numbers of a training.
#include "autograd/create.h"
#include "core/registry.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/what_is_left.h"
#include "train/loop/model_state.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

struct FromRankZeroOptions {
  int64_t every = 1;
};
void visit(Fields& f, FromRankZeroOptions& o) {
  f("send-every", o.every,
    {.help = "steps between two times that rank 0 sends its weights", .unit = "N", .range = kPositive});
}

// As ddp, but all ranks get the weights of rank 0 after each step, or after each `send-every` steps.
class FromRankZero : public Placement {
 public:
  explicit FromRankZero(const PlacementInputs& in) : Placement(in), every_(in.own<FromRankZeroOptions>().every) {}

  void update(const std::function<void()>& f) override {
    f();
    if (++steps_ % every_ != 0) return;
    const Tensor& values = parameters().values();
    if (group().rank() > 0) copy(values, zeros(values.shape(), values.dtype()));
    group().broadcast(values, 0).wait();
    sent_ += value_bytes();
  }
  comm::Reducer::Totals traffic() const override {
    comm::Reducer::Totals out = Placement::traffic();
    out.bytes += sent_;
    return out;
  }

 private:
  const int64_t every_;
  int64_t steps_ = 0, sent_ = 0;
};

const RegisterStrategy from_rank_zero({.name = "from-rank-zero",
                                       .summary = "ddp whose rank 0 sends its weights after each step",
                                       .settings = FromRankZeroOptions{},
                                       .make = [](const PlacementInputs& in) -> std::unique_ptr<Placement> {
                                         return std::make_unique<FromRankZero>(in);
                                       },
                                       .memory =
                                           [](const ModelSize& size, int ranks, const Settings& settings) {
                                             RankMemory out = memory_of_all(size, ranks, settings);
                                             out.weights += size.parameters;  // on their way
                                             return out;
                                           },
                                       .check =
                                           [](const Settings& settings, int64_t ranks) {
                                             const int64_t every = settings.as<FromRankZeroOptions>().every;
                                             RT_CHECK_AS(UsageError, every <= 10 * ranks, "--send-every ", every,
                                                         ": more than 10 steps for each of ", ranks, " ranks");
                                           }});

struct Trained {
  test::Left left;  // tensors of the checkpoint after the last step
  double sent = 0;  // bytes of an epoch
};

TrainOptions options_of(const char* strategy, const char* send_every) {
  TrainOptions o;
  test::set(o, {{"data", "shapes"},
                {"train-size", "220"},
                {"test-size", "20"},
                {"hidden", "8"},
                {"batch-size", "20"},
                {"epochs", "2"},
                {"dropout", "0.2"},
                {"ema", "0.9"},
                {"deterministic", "true"},
                {"workers", "0"},
                {"threads", "1"},
                {"device", "cpu"},
                {"strategy", strategy},
                {"send-every", send_every}});
  o.data.val_size = 20;
  return o;
}

Trained train(const char* strategy, int ranks, const char* send_every = "1") {
  const TrainOptions o = options_of(strategy, send_every);
  Trained out;
  const std::string cause = comm::test::on_group(comm::test::kWorlds[0], ranks, [&](comm::ProcessGroup& group) {
    RunSetup setup(resolve(o, ranks));
    Trainer trainer = make_trainer(setup, group);
    trainer.share_state();
    trainer.fit([&](const Metrics& m) { out.sent = m.comm_bytes.value_or(out.sent); },
                [&] {
                  out.left.clear();
                  for (const TensorFile& file : trainer.files())
                    for (const FileTensor& t : file.tensors)
                      out.left.emplace(concat(file.name, " ", t.name), test::copy_of(t.get({0, t.rows()})));
                });
  });
  EXPECT_EQ(cause, "") << strategy;
  return out;
}

TEST(OwnStrategy, IsFoundByItsName) {
  EXPECT_TRUE(find_strategy("from-rank-zero").starts_ranks());
  EXPECT_EQ(names_of(strategies()).back(), "from-rank-zero");
  try {
    (void)find_strategy("from-rank-zro");
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_MENTIONS(e.what(), "did you mean from-rank-zero?");
  }
}

TEST(OwnStrategy, GivesTheBytesOfDdp) {
  for (const int ranks : {2, 3}) {
    const Trained ddp = train("ddp", ranks), own = train("from-rank-zero", ranks),
                  seldom = train("from-rank-zero", ranks, "2");
    EXPECT_GE(ddp.left.size(), 12u);
    EXPECT_NO_THROW(test::expect_same(ddp.left, own.left, "from-rank-zero"));
    EXPECT_NO_THROW(test::expect_same(ddp.left, seldom.left, "from-rank-zero --send-every 2"));
    EXPECT_GT(own.sent, ddp.sent);
    EXPECT_DOUBLE_EQ(seldom.sent - ddp.sent, (own.sent - ddp.sent) / 2);
  }
}

TEST(OwnStrategy, HasASettingOfItsOwn) {
  TrainOptions own = options_of("from-rank-zero", "7"), ddp = options_of("ddp", "7");
  EXPECT_MENTIONS(config_text(own), "\n# Strategy from-rank-zero\nsend-every = 7\n");
  EXPECT_EQ(config_text(ddp).find("send-every"), std::string::npos);
  EXPECT_EQ(test::message_of<UsageError>([&] { set_option(ddp, "send-every", "3", "--send-every"); }),
            "--send-every: not a setting of ddp; from-rank-zero has it (--strategy)");
  set_option(own, "send-every", "21", "--send-every");
  EXPECT_EQ(own.parallel.strategy.chosen().as<FromRankZeroOptions>().every, 21);
  EXPECT_EQ(test::message_of<UsageError>([&] { (void)resolve(own, 2); }),
            "--send-every 21: more than 10 steps for each of 2 ranks");
  EXPECT_NO_THROW((void)resolve(own, 3));
}

TEST(OwnStrategy, HasItsOwnFormulaOfMemory) {
  TrainOptions own = options_of("from-rank-zero", "1"), ddp = options_of("ddp", "1");
  EXPECT_EQ(model_state_bytes({1000}, own.step, own.parallel, 2),
            model_state_bytes({1000}, ddp.step, ddp.parallel, 2) + 4000);
}

}  // namespace
}  // namespace ringtape
