// Courses of the learning rate: against PyTorch's (tests/fixtures/make_schedules.py), and in trainings as users run
// them that go on from the middle.
#include "tests/support/jobs.h"
#include "train/optim/courses.h"

namespace ringtape {
namespace {

using namespace test;

Selection course(const char* name, Settings settings) {
  Selection out(schedules(), name);
  out.of(name) = std::move(settings);
  return out;
}

const Safetensors& fixture() {
  static const Safetensors file =
      read_safetensors(concat(RINGTAPE_SOURCE_DIR, "/tests/fixtures/schedules.safetensors"));
  return file;
}

TEST(Schedules, FollowTheirFormulas) {
  const Schedule constant;
  EXPECT_EQ(constant.at(12345), 0.1);

  const Schedule step({.course = course("step", StepScheduleOptions{25, 0.1})}, 1, 10, 60);
  EXPECT_EQ(step.at(249), 1);
  EXPECT_NEAR(step.at(250), 0.1, 1e-15);
  EXPECT_NEAR(step.at(599), 0.01, 1e-15);

  const Schedule cosine({.course = course("cosine", CosineOptions{.final_lr = 1}), .warmup_epochs = 1}, 2, 10, 11);
  EXPECT_NEAR(cosine.at(0), 0.2, 1e-15);
  EXPECT_EQ(cosine.at(9), 2);
  EXPECT_EQ(cosine.at(10), 2);
  EXPECT_NEAR(cosine.at(60), 1.5, 1e-12);
  EXPECT_NEAR(cosine.at(110), 1, 1e-12);

  // torch.optim.lr_scheduler.CosineAnnealingLR(T_max=10, eta_min=1e-3), stepped after each epoch.
  const Schedule by_epoch({.course = course("cosine", CosineOptions{1e-3, "epoch"})}, 0.5, 7, 10);
  for (int64_t epoch : {0, 1, 5, 9})
    for (int64_t step : {0, 6})
      EXPECT_NEAR(by_epoch.at(7 * epoch + step), 1e-3 + (0.5 - 1e-3) * (1 + std::cos(M_PI * double(epoch) / 10)) / 2,
                  1e-15)
          << epoch;

  const Schedule warm({.course = course("cosine", CosineOptions{.by = "epoch"}), .warmup_epochs = 2, .warmup_lr = 1}, 2,
                      10, 12);
  EXPECT_NEAR(warm.at(0), 1.05, 1e-15);
  EXPECT_EQ(warm.at(19), 2);
  EXPECT_EQ(warm.at(29), 2);
  EXPECT_NEAR(warm.at(70), 1, 1e-12);
  EXPECT_EQ(test::message_of<UsageError>([] { Schedule({.course = Selection(schedules(), "cos")}); }),
            "unknown schedule 'cos'; did you mean cosine?");
}

TEST(Schedules, SayThatTheirEndMoved) {
  const auto note = [](const char* name, int64_t step, int64_t epochs, int64_t max_steps = 0) {
    const ScheduleOptions options{.course = Selection(schedules(), name)};
    return moved_end(Schedule(options, 0.1, 10, 4), Schedule(options, 0.1, 10, epochs, max_steps), step);
  };
  EXPECT_EQ(note("polynomial", 40, 8),
            "the schedule ends at step 80, not 40 as before: the next learning rate is 0.05, before 0.0025");
  EXPECT_EQ(note("polynomial", 10, 4, 20),
            "the schedule ends at step 20, not 40 as before: the next learning rate is 0.05, before 0.075");
  for (const char* name : {"cosine", "one-cycle"}) EXPECT_NE(note(name, 40, 8), "") << name;
  for (const char* name : {"constant", "step", "multistep", "exponential", "restarts", "plateau"})
    EXPECT_EQ(note(name, 40, 8), "") << name;
  EXPECT_EQ(note("polynomial", 20, 4, 1000), "");

  const ScheduleOptions warm{.warmup_epochs = 5};
  EXPECT_EQ(warmup_beyond_end(Schedule(warm, 0.1, 10, 8, 20)),
            "the warm-up of 50 steps is longer than the training of 20: the learning rate rises to 0.04 of 0.1 only");
  EXPECT_EQ(warmup_beyond_end(Schedule(warm, 0.1, 10, 8, 50)), "");
}

TEST(Schedules, FollowPyTorch) {
  constexpr int64_t kPerEpoch = 5;
  struct Row {
    const char* name;  // of the fixture
    Selection course;
    bool by_epoch = false;
    double warmup_epochs = 0;
  };
  const CosineOptions by_epoch{.by = "epoch"};
  const Row rows[] = {
      {"one_cycle", course("one-cycle", OneCycleOptions{})},
      {"one_cycle_linear",
       course("one-cycle",
              OneCycleOptions{.pct_start = 0.25, .div_factor = 10, .final_div_factor = 100, .anneal = "linear"})},
      {"one_cycle_three", course("one-cycle", OneCycleOptions{.pct_start = 0.4, .three_phase = true})},
      {"restarts", course("restarts", RestartsOptions{.end = {.final_lr = 0.01}, .epochs = 3})},
      {"restarts_mult", course("restarts", RestartsOptions{.end = by_epoch, .epochs = 2, .mult = 2}), true},
      {"polynomial", course("polynomial", PolynomialOptions{.power = 2})},
      {"multistep", course("multistep", MultistepOptions{"3,7,8", 0.2}), true},
      {"exponential", course("exponential", ExponentialOptions{0.9}), true},
      {"step", course("step", StepScheduleOptions{4, 0.3}), true},
      {"warm_polynomial", course("polynomial", PolynomialOptions{}), false, 2},
      {"warm_cosine", course("cosine", CosineOptions{.final_lr = 0.02}), false, 2},
  };
  for (const Row& row : rows) {
    const std::vector<double> rates = values(fixture()[row.name]);
    const auto n = int64_t(rates.size()), epochs = row.by_epoch ? n : n / kPerEpoch;
    const Schedule ours({.course = row.course, .warmup_epochs = row.warmup_epochs}, 0.5, kPerEpoch, epochs);
    for (int64_t step = 0; step < kPerEpoch * epochs; ++step)
      EXPECT_NEAR(ours.at(step), rates[size_t(row.by_epoch ? step / kPerEpoch : step)], 1e-12)
          << row.name << ", step " << step;
  }
}

TEST(Schedules, OneCycleMovesTheMomentumAsPyTorch) {
  for (const bool three : {false, true}) {
    OneCycleOptions options{.cycle_momentum = true};
    if (three)
      options = {
          .pct_start = 0.4, .three_phase = true, .cycle_momentum = true, .base_momentum = 0.7, .max_momentum = 0.9};
    const std::vector<double> momenta = values(fixture()[three ? "one_cycle_three/momentum" : "one_cycle/momentum"]);
    const Schedule ours({.course = course("one-cycle", options)}, 0.5, 5, 12);
    for (size_t step = 0; step < momenta.size(); ++step)
      EXPECT_NEAR(ours.momentum_at(int64_t(step)).value(), momenta[step], 1e-12) << step;
  }
  EXPECT_FALSE(Schedule({.course = course("one-cycle", OneCycleOptions{})}).momentum_at(0));
  EXPECT_FALSE(Schedule().momentum_at(0));
}

TEST(Schedules, APlateauFollowsPyTorch) {
  const std::vector<double> top1 = values(fixture()["plateau/top1"]);
  for (const bool cools : {false, true}) {
    const PlateauOptions options =
        cools ? PlateauOptions{.factor = 0.3, .patience = 0, .threshold = 0.05, .cooldown = 3, .min_lr = 0.004}
              : PlateauOptions{.factor = 0.5, .patience = 2, .threshold = 1e-3};
    const std::vector<double> rates = values(fixture()[cools ? "plateau_cooldown" : "plateau"]);
    EXPECT_LT(rates.back(), rates[0] / 4);
    for (const double warmup : {0.0, 3.0}) {  // validations in the warm-up do not count
      Schedule ours({.course = course("plateau", options), .warmup_epochs = warmup}, 0.5, 7, 60);
      for (int64_t epoch = 1; epoch < int64_t(warmup); ++epoch) ours.watch(7 * epoch, 0.99);
      for (size_t i = 0; i < rates.size(); ++i) {
        const int64_t epoch = int64_t(i) + int64_t(warmup);
        EXPECT_NEAR(ours.at(7 * epoch), rates[i], 1e-12) << epoch;
        EXPECT_EQ(ours.at(7 * epoch + 6), ours.at(7 * epoch));
        ours.watch(7 * (epoch + 1), top1[i]);
      }
    }
  }
}

// As PyTorch's mode="min", threshold_mode="rel".
TEST(Schedules, APlateauOfALossIsBelowTheBest) {
  Schedule ours({.course = course("plateau", PlateauOptions{.factor = 0.5, .patience = 1, .threshold = 0.1})}, 1, 1,
                60);
  int64_t step = 0;
  for (const auto& [loss, rate] : std::vector<std::pair<double, double>>{
           {1, 1}, {0.91, 1}, {0.89, 1}, {0.81, 1}, {0.805, 0.5}, {0.79, 0.5}, {2, 0.5}, {0.79, 0.25}}) {
    ours.watch(++step, -loss);
    EXPECT_EQ(ours.at(step), rate) << step;
  }
}

TEST(Schedules, EveryStepHasARate) {
  for (const ScheduleEntry& entry : schedules())
    for (const auto& [epochs, warmup] : {std::pair{1, 0.0}, {1, 1.0}, {2, 0.3}, {7, 2.0}}) {
      const Schedule ours({.course = Selection(schedules(), entry.name), .warmup_epochs = warmup}, 0.5, 3, epochs);
      for (int64_t step = 0; step <= 3 * epochs; ++step) {
        EXPECT_GE(ours.at(step), 0) << entry.name << ", step " << step << " of " << epochs;
        EXPECT_LE(ours.at(step), 0.5) << entry.name << ", step " << step << " of " << epochs;
      }
    }
}

TEST(Schedules, MilestonesMustBeAscendingNumbers) {
  for (const char* bad : {"", "a", "3,", "3,2", "3,3", "0,2", "3 4", ",3", "-1"})
    EXPECT_MENTIONS(message_of<UsageError>([&] { Schedule({.course = course("multistep", MultistepOptions{bad})}); }),
                    concat("--milestones ", bad, ": expected ascending numbers of epochs"));
}

class ScheduleTest : public JobTest {};

// Without the checkpoints behind the middle, the run goes on from there.
TEST_F(ScheduleTest, EachGoesOnFromTheMiddleWithTheSameBits) {
  const std::string shapes =
      " --data shapes --test-size 50 --epochs 4 --batch-size 20 --threads 1 --device cpu --workers 0 "
      "--checkpoint-steps 7 --keep 100 --warmup-epochs 0.5 ";
  const std::map<std::string, std::string> settings = {
      {"multistep", "--milestones 1,2,3"},
      {"one-cycle", "--cycle-momentum"},
      {"restarts", "--restart-epochs 1 --restart-mult 2"},
      {"plateau", "--plateau-patience 0 --plateau-threshold 0.4 --plateau-cooldown 1"}};
  const auto compare = [&](const std::string& training, const std::string& name) {
    ASSERT_EQ(run(concat("ringtape ", training, " --run ", name)), 0) << log();
    const auto weights = [&] { return read_file((run_folder(name) / "checkpoints/last/model.safetensors").string()); };
    const std::string whole = weights();
    int kept = 0;
    for (const auto& entry : fs::directory_iterator(run_folder(name) / "checkpoints")) {
      const std::string file = entry.path().filename().string();
      if (!file.starts_with("step-")) continue;
      if (std::stoi(file.substr(5)) <= 42) ++kept;
      else fs::remove_all(entry.path());
    }
    EXPECT_GE(kept, 4);
    ASSERT_EQ(run(concat("ringtape ", training, " --resume --run ", name)), 0) << log();
    EXPECT_MENTIONS(log(), "step-00000042: step 42, in epoch 3");
    EXPECT_TRUE(weights() == whole) << name;
  };
  for (const ScheduleEntry& entry : schedules()) {
    const auto own = settings.find(entry.name);
    const std::string chosen = concat(" --schedule ", entry.name, " ", own == settings.end() ? "" : own->second);
    compare(concat("train --hidden 8 --val-size 60 --train-size 460", shapes, chosen), entry.name);
  }
  const std::string plateau = " --schedule plateau " + settings.at("plateau");
  compare(concat("train --hidden 8 --val-size 60 --train-size 460 --devices 2", shapes, plateau), "ranks");
  compare(concat("pretrain --method simclr --model mlp --hidden 8 --train-size 400", shapes, plateau), "simclr");
}

TEST_F(ScheduleTest, AnEndThatMovesIsSaid) {
  const std::string base = "ringtape " + kTraining + " --run r ";  // cosine, 70 steps an epoch
  ASSERT_EQ(run(base + "--epochs 2 --warmup-epochs 1 --max-steps 60"), 0) << log();
  EXPECT_MENTIONS(log(),
                  "note   the warm-up of 70 steps is longer than the training of 60: the learning rate rises to "
                  "0.00171429 of 0.002 only\n");
  ASSERT_EQ(run(base + "--resume --epochs 2 --max-steps 0"), 0) << log();
  EXPECT_LACKS(log(), "note");
  ASSERT_EQ(run(base + "--resume --epochs 3"), 0) << log();
  EXPECT_MENTIONS(log(),
                  "note   the schedule ends at step 210, not 140 as before: the next learning rate is 0.001, "
                  "before 1.00693e-06\n");
  ASSERT_EQ(run(base + "--resume --epochs 3"), 0) << log();
  EXPECT_LACKS(log(), "note");
}

TEST_F(ScheduleTest, APlateauLowersTheRate) {
  ASSERT_EQ(run("ringtape " + kTraining.substr(0, kTraining.find("--optimizer")) +
                " --threads 1 --device cpu --epochs 4 --lr 0.5 --schedule plateau --plateau-patience 0 "
                "--plateau-threshold 9 --run r"),
            0)
      << log();
  for (const char* rate : {"lr 0.5", "lr 0.05", "lr 0.005"}) EXPECT_MENTIONS(log(), concat(rate, "\n"));
  EXPECT_EQ(run("ringtape train --train-size 100 --val-size 0 --schedule plateau"), 2);
  EXPECT_MENTIONS(log(), "--schedule plateau: needs validations; leave out --val-size 0");
  EXPECT_EQ(run("ringtape pretrain --method simclr --data shapes --train-size 300 --knn-every 0 --schedule plateau"),
            2);
  EXPECT_MENTIONS(log(), "--schedule plateau: needs validations; leave out --knn-every 0");
  EXPECT_EQ(run("ringtape train --data shapes --schedule one-cycle --cycle-momentum --optimizer sgd --momentum 0"), 2);
  EXPECT_MENTIONS(log(), "--cycle-momentum: this optimizer has no momentum");
}

}  // namespace
}  // namespace ringtape
