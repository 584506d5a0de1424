// One rank whose numbers become NaN, or whose memory runs out, in the middle of a training: what the other ranks
// report, and what files remain.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "comm/job/hub.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

enum class Fault : uint8_t { none, loss, gradient, memory };

// A model whose outputs, or their gradients, become bad during the training.
class Faulty : public nn::Module {
 public:
  Faulty(std::unique_ptr<nn::Module> inner, Fault fault, int64_t step)
      : inner_(std::move(inner)), fault_(fault), step_(step) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = (*inner_)(x);
    if (!training() || ++calls_ != step_ || fault_ == Fault::none) return y;
    if (fault_ == Fault::memory) throw OutOfMemory("out of memory on the cpu: asked for 1 TB");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (fault_ == Fault::loss) return y * nan;
    return record("faulty", {y}, y.detach(), [nan](const Tensor& dy) { return Tensors{dy * nan}; });
  }
  void visit(nn::Visitor& visitor) override { inner_->visit(visitor); }
  std::string str() const override { return "Faulty"; }

 private:
  const std::unique_ptr<nn::Module> inner_;
  const Fault fault_;
  const int64_t step_;
  int64_t calls_ = 0;
};

// 10 steps per epoch, a checkpoint every 4 steps.
TrainOptions options() {
  TrainOptions o;
  test::set(o, {{"train-size", "220"}, {"test-size", "20"}, {"hidden", "8"}});
  o.data.val_size = 20, o.trainer.batch_size = 20, o.trainer.epochs = 3;
  o.execution.workers = 0, o.execution.threads = 1, o.execution.device = "cpu", o.checkpoint.steps = 4;
  return o;
}

// Trains; throws the error that ends the training, and tells the others.
void train_rank(comm::ProcessGroup& group, bool bad, Fault fault, int64_t step, const std::string& folder) {
  RunSetup task(resolve(options(), group.size()));
  if (bad) task.model = std::make_unique<Faulty>(std::move(task.model), fault, step);
  Trainer trainer = make_trainer(task, group);
  trainer.share_state();
  const Checkpoints checkpoints(folder, 2);
  try {
    trainer.fit([](const Metrics&) {}, [&] { checkpoints.save(trainer.state(), trainer.files(), trainer.course()); });
  } catch (const std::exception& e) {
    group.transport().context().failure->raise(concat("rank ", group.rank(), ": ", e.what()));
    throw;
  }
}

// Trains on three ranks, of which `bad` has the fault at this step, with checkpoints in `folder`. Returns the error of
// the ranks, which must all have the same.
std::string train(const comm::test::World& world, int bad, Fault fault, int64_t step, const std::string& folder) {
  const TemporaryFolder said;
  world.run(3, 1, comm::Seconds(30), [&](comm::Transport& t) {
    comm::Context context = t.context();
    const auto hub = comm::Hub::open(context.store, context.failure, t.rank(), t.size(), concat("rank ", t.rank()));
    context.store = comm::prefix_store(context.store, "training");
    std::string why;
    try {
      comm::ProcessGroup group(t.open(std::move(context)));
      train_rank(group, t.rank() == bad, fault, step, folder);
    } catch (const std::exception& e) {
      why = e.what();
    }
    write_file(concat(said.path(), "/", t.rank()), why);
  });
  std::string all;
  for (int rank = 0; rank < 3; ++rank) all += concat(rank, ": ", read_file(concat(said.path(), "/", rank)), "\n");
  return all;
}

void expect_all(const std::string& said, const std::string& cause) {
  for (int rank = 0; rank < 3; ++rank) {
    const size_t begin = said.find(concat(rank, ": ")), end = said.find('\n', begin);
    EXPECT_MENTIONS(said.substr(begin, end - begin), cause);
  }
}

// Expects the newest checkpoint to be undamaged, with finite weights.
void expect_checkpoint(const std::string& folder, int64_t step) {
  RunSetup task(resolve(options()));
  const auto found =
      Checkpoints(folder, 2).newest(make_trainer(task).course(), [](const std::string& why) { ADD_FAILURE() << why; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, step);
  for (const NamedTensor& t : read_safetensors(found->path + "/model.safetensors").tensors)
    for (const double w : test::values(t.tensor)) ASSERT_TRUE(std::isfinite(w)) << t.name;
  for (const auto& entry : fs::directory_iterator(folder))
    EXPECT_FALSE(is_temporary_name(entry.path().filename().string())) << entry.path();
}

const std::vector<const comm::test::World*>& worlds() {
  static const std::vector<const comm::test::World*> all = [] {
    std::vector<const comm::test::World*> out;
    for (const comm::test::World& world : comm::test::kWorlds)
      if (std::string(world.name).starts_with("processes")) out.push_back(&world);
    return out;
  }();
  return all;
}

TEST(BadRank, WithoutAFaultAllIsWell) {
  const TemporaryFolder folder;
  EXPECT_EQ(train(*worlds()[0], 1, Fault::none, 0, folder.path()), "0: \n1: \n2: \n");
  expect_checkpoint(folder.path(), 30);
}

TEST(BadRank, WhoseLossIsNanIsNamedByAll) {
  for (const comm::test::World* world : worlds())
    for (const int bad : {0, 2}) {
      const TemporaryFolder folder;
      const std::string said = train(*world, bad, Fault::loss, 16, folder.path());
      expect_all(said, concat("the train loss became nan, first on rank ", bad, " of 3, by step 16 (epoch 2"));
      expect_checkpoint(folder.path(), 12);
    }
}

// If the loss of a step does not show the fault, the loss of the next step does, on all ranks; unless weights are to be
// saved before.
TEST(BadRank, WhoseGradientIsNanSpoilsNoCheckpoint) {
  const TemporaryFolder between, before;
  expect_all(train(*worlds()[0], 1, Fault::gradient, 13, between.path()), "the train loss became nan by step 1");
  expect_checkpoint(between.path(), 12);
  expect_all(train(*worlds()[0], 1, Fault::gradient, 16, before.path()),
             "the weights are no longer finite after step 16");
  expect_checkpoint(before.path(), 12);
}

TEST(BadRank, WithoutMemoryInAStepEndsAll) {
  for (const comm::test::World* world : worlds()) {
    const TemporaryFolder folder;
    const auto begin = comm::Clock::now();
    expect_all(train(*world, 1, Fault::memory, 15, folder.path()), "out of memory on the cpu: asked for 1 TB");
    EXPECT_LT(comm::Seconds(comm::Clock::now() - begin).count(), 20) << "not by its deadline";
    expect_checkpoint(folder.path(), 12);
  }
}

}  // namespace
}  // namespace ringtape
