// A strategy of one's own: its row, and where it puts the numbers of a training.
#include "autograd/create.h"
#include "core/registry.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/what_is_left.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

// As ddp, but all ranks get the weights of rank 0 after each step.
class FromRankZero : public Placement {
 public:
  explicit FromRankZero(const PlacementInputs& in) : Placement(in) {}

  void update(const std::function<void()>& f) override {
    f();
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
  int64_t sent_ = 0;
};

const RegisterStrategy from_rank_zero({.name = "from-rank-zero",
                                       .summary = "ddp whose rank 0 sends its weights after each step",
                                       .make = [](const PlacementInputs& in) -> std::unique_ptr<Placement> {
                                         return std::make_unique<FromRankZero>(in);
                                       }});

struct Trained {
  test::Left left;  // tensors of the checkpoint after the last step
  double sent = 0;  // bytes of an epoch
};

Trained train(const char* strategy, int ranks) {
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
                {"strategy", strategy}});
  o.data.val_size = 20;
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
    const Trained ddp = train("ddp", ranks), own = train("from-rank-zero", ranks);
    EXPECT_GE(ddp.left.size(), 12u);
    EXPECT_NO_THROW(test::expect_same(ddp.left, own.left, "from-rank-zero"));
    EXPECT_GT(own.sent, ddp.sent);
  }
}

}  // namespace
}  // namespace ringtape
