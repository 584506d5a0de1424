// Trainings that a limit ends before their epochs do: the ringtape binary, with one process and with ranks.
#include "tests/support/jobs.h"
#include "tests/support/settings.h"
#include "train/io/json.h"
#include "train/loop/stop_rule.h"
#include "train/optim/schedule.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using namespace test;

// 20 steps per epoch.
const std::string kShort =
    "train --train-size 500 --test-size 50 --val-size 100 --batch-size 20 --hidden 16 --dropout 0.1 --threads 1 "
    "--device cpu --workers 0 ";

class RunLimitsTest : public JobTest {
 protected:
  // Lines of metrics.jsonl without times.
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> out;
    std::ifstream file(run_folder(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json& m = out.emplace_back(parse_json(line));
      for (const char* key : {"seconds", "images_per_s", "data_s", "forward_s", "backward_s", "optimizer_s", "comm_s",
                              "exposed_s", "peak_bytes", "process_bytes", "train_s", "run", "metrics_crc32"})
        m.erase(key);
    }
    return out;
  }
  void expect_same_run(const std::string& run, const std::string& reference) {
    EXPECT_TRUE(bytes(run) == bytes(reference)) << run;
    EXPECT_EQ(metrics(run), metrics(reference)) << run;
  }
};

TEST_F(RunLimitsTest, AStepEndsAFinishedRunThatALargerOneGoesOnWith) {
  const std::string base = "ringtape " + kShort + "--epochs 4 --run ";
  ASSERT_EQ(run(base + "whole --max-steps 50"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --max-steps 50, in epoch 3 of 4");
  const Json summary = metrics("whole").back();
  EXPECT_EQ(summary["split"], "summary");
  EXPECT_EQ(summary["step"], 50);
  EXPECT_EQ(summary["epoch"], 3);
  EXPECT_EQ(summary["ended_by"], "max-steps");
  EXPECT_EQ(fs::read_symlink(run_folder("whole") / "checkpoints/best"), "step-00000050");  // of a part of an epoch
  for (const int first : {1, 20, 33}) {
    const std::string name = concat("from", first);
    ASSERT_EQ(run(concat(base, name, " --max-steps ", first)), 0) << log();
    EXPECT_MENTIONS(log(), concat("ended  by --max-steps ", first));
    EXPECT_EQ(metrics(name).back()["step"], first);
    const std::string before = bytes(name);
    ASSERT_EQ(run(concat(base, name, " --resume --max-steps ", first)), 0) << log();
    EXPECT_TRUE(bytes(name) == before);
    ASSERT_EQ(run(base + name + " --resume --max-steps 50"), 0) << log();
    expect_same_run(name, "whole");
  }
  EXPECT_EQ(run(base + "whole --resume --max-steps 49"), 2);
  EXPECT_MENTIONS(log(), "--max-steps 49: the run has already trained 50 steps");
  ASSERT_EQ(run(base + "whole --resume --max-steps 1000"), 0) << log();
  ASSERT_EQ(run(base + "all"), 0) << log();
  EXPECT_FALSE(metrics("whole").back().contains("ended_by"));
  expect_same_run("whole", "all");
}

TEST_F(RunLimitsTest, RanksAgreeOnTheLastStep) {
  const std::string base = "ringtape " + kShort + "--devices 2 --checkpoint-every 0 ";
  ASSERT_EQ(run(base + "--epochs 4 --run steps --max-steps 30"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --max-steps 30, in epoch 2 of 4");
  for (const char* way : {"--strategy ddp", "--strategy fsdp", "--elastic"}) {
    ASSERT_EQ(run(concat(base, way, " --epochs 1000000 --max-time 1.5s --run time --overwrite")), 0) << way << log();
    EXPECT_MENTIONS(log(), "ended  by --max-time 1.5s at step ");
    EXPECT_EQ(metrics("time").back()["ended_by"], "max-time");
  }
}

TEST_F(RunLimitsTest, EndsTrainingsWithoutLabels) {
  const std::string base =
      "ringtape pretrain --method byol --data shapes --train-size 100 --test-size 50 --model mlp --hidden 16 "
      "--batch-size 20 --epochs 4 --knn-k 5 --knn-every 2 --optimizer sgd --threads 1 --device cpu --run ";
  ASSERT_EQ(run(base + "whole --max-steps 12"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --max-steps 12, in epoch 3 of 4");
  EXPECT_TRUE(fs::exists(run_folder("whole") / "exported/backbone.safetensors"));
  EXPECT_EQ(metrics("whole").back()["epoch"], 3);
  EXPECT_EQ(metrics("whole").back()["top1"], metrics("whole")[metrics("whole").size() - 2]["top1"]);
  ASSERT_EQ(run(base + "patient --patience 2 --min-delta 1"), 0) << log();
  EXPECT_MENTIONS(log(), "saved");  // its last epoch is the fourth all the same
  ASSERT_EQ(run(base + "ranks --devices 2 --epochs 9 --patience 3 --min-delta 1"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --patience 3 after epoch 6 of 9: no validation was better than that of epoch 2");
}

TEST_F(RunLimitsTest, TimeCountsEarlierPartsOfTheRun) {
  const std::string base = "ringtape " + kShort + "--epochs 1000000 --run r ";
  ASSERT_EQ(run(base + "--max-time 1s"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --max-time 1s at step ");
  const int64_t steps = metrics("r").back()["step"].get<int64_t>();
  ASSERT_EQ(run(base + "--max-time 1s --resume"), 0) << log();
  EXPECT_EQ(metrics("r").back()["step"], steps);
  ASSERT_EQ(run(base + "--max-time 1.3s --resume"), 0) << log();
  EXPECT_GT(metrics("r").back()["step"].get<int64_t>(), steps);
  EXPECT_EQ(run("ringtape " + kShort + "--max-time soon"), 2);
  EXPECT_MENTIONS(log(), "--max-time: expected a time such as 90s, 10m, 2h or 1h30m, got 'soon'");
}

TEST_F(RunLimitsTest, PatienceEndsItAndIsResumed) {
  const std::string base = "ringtape " + kShort + "--epochs 9 --lr 0.002 --min-delta 0.9 --run ";
  ASSERT_EQ(run(base + "whole --patience 3"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --patience 3 after epoch 4 of 9: no validation was better than that of epoch 1");
  EXPECT_EQ(metrics("whole").back()["ended_by"], "patience");
  ASSERT_EQ(run(base + "parts --patience 1"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --patience 1 after epoch 2 of 9");
  ASSERT_EQ(run(base + "parts --patience 3 --resume --max-steps 50"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --max-steps 50");
  ASSERT_EQ(run(base + "parts --patience 3 --resume --max-steps 0"), 0) << log();
  EXPECT_MENTIONS(log(), "ended  by --patience 3 after epoch 4 of 9");
  expect_same_run("parts", "whole");
  EXPECT_EQ(run("ringtape " + kShort.substr(0, kShort.find("--val-size")) + "--val-size 0 --patience 2"), 2);
  EXPECT_MENTIONS(log(), "--patience 2: needs validations; leave out --val-size 0");
}

TEST(RunLimits, DurationsHaveUnits) {
  EXPECT_EQ(seconds_of("90", "x"), 90);
  EXPECT_EQ(seconds_of("90s", "x"), 90);
  EXPECT_EQ(seconds_of("1.5m", "x"), 90);
  EXPECT_EQ(seconds_of("1h30m", "x"), 5400);
  EXPECT_EQ(seconds_of("2d", "x"), 172'800);
  for (const char* bad : {"", "s", "0s", "-1s", "1x", "1h30", "1 h", "inf", "1e3s", "nan"})
    EXPECT_THROW((void)seconds_of(bad, "x"), UsageError) << bad;
}

TEST(RunLimits, AValidationMustBeBetterByMoreThanTheDelta) {
  std::optional<TrainState::Improved> newest;
  note_validation(newest, 1, 0.5, 0.1);
  note_validation(newest, 2, 0.6, 0.1);
  EXPECT_EQ(newest->epoch, 1);
  note_validation(newest, 3, 0.625, 0.1);
  EXPECT_EQ(newest->epoch, 3);
  EXPECT_EQ(newest->score, 0.625);
  note_validation(newest, 4, -0.25, 0.1);
  EXPECT_EQ(newest->epoch, 3);
}

TEST(RunLimits, AScheduleEndsWithTheLastStep) {
  const Selection cosine(schedules(), "cosine");
  const Schedule whole({.course = cosine}, 1, 10, 5), cut({.course = cosine}, 1, 20, 5, 50);
  EXPECT_EQ(cut.steps(), 50);
  for (int64_t step = 0; step <= 50; ++step) EXPECT_EQ(cut.at(step), whole.at(step));
  EXPECT_EQ(Schedule({.course = cosine}, 1, 10, 5, 1000).steps(), 50);
}

TEST(Limits, TheTimeThatIsLeftIsEstimatedOnce) {
  TrainOptions o;
  set(o, {{"train-size", "60"}, {"test-size", "10"}, {"hidden", "4"}, {"val-size", "20"}});
  o.trainer.batch_size = 20, o.trainer.epochs = 1'000'000'000, o.execution.workers = 0, o.execution.device = "cpu";
  o.limits.max_time = "100000s";  // it is the limit that is told
  RunSetup task(resolve(o));
  Trainer trainer = make_trainer(task);
  std::vector<double> left;
  int reports = 0;
  trainer.on_estimate([&](double seconds) { left.push_back(seconds); }, 0.01);
  struct Enough {};
  const auto report = [&](const Metrics&) {
    if (!left.empty() && ++reports == 5) throw Enough();
  };
  EXPECT_THROW(trainer.fit(report), Enough);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_GT(left[0], 90'000);
  EXPECT_LE(left[0], 100'000);
}

// As after a change of ranks that comes with the last step.
TEST(Limits, AWholeEpochIsStillReported) {
  TrainOptions o;
  set(o, {{"train-size", "60"}, {"test-size", "10"}, {"hidden", "4"}, {"val-size", "20"}});
  o.trainer.batch_size = 20, o.trainer.epochs = 1, o.execution.workers = 0, o.execution.device = "cpu";
  const auto trained = [&](bool again) {
    RunSetup task(resolve(o));
    Trainer trainer = make_trainer(task);
    std::vector<std::string> events;
    const auto fit = [&] {
      events.clear();
      const auto report = [&](const Metrics& m) { events.push_back(m.split); };
      EXPECT_TRUE(trainer.fit(report));
    };
    fit();
    if (again) {
      TrainState state = trainer.state();
      --state.epoch, state.batch = trainer.steps_per_epoch();
      state.tally.samples = 40, state.tally.loss = 1;
      trainer.restore(state);
      fit();
    }
    EXPECT_EQ(trainer.ended_by(), "");
    EXPECT_EQ(trainer.state().epoch, 1);
    EXPECT_EQ(trainer.state().batch, 0);
    return events;
  };
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace
}  // namespace ringtape
