// Run directories, configuration files, suggestions and the progress bar.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/evaluation/metrics.h"
#include "train/io/file.h"
#include "train/report/progress.h"
#include "train/run/run_dir.h"
#include "train/run/time_left.h"
#include "train/run/time_text.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("ringtape_run_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(RunTest, NamesAreBelowRunsAndPathsAreTakenAsTheyAre) {
  EXPECT_EQ(run_path("digits"), "runs/digits");
  EXPECT_EQ(run_path("/tmp/digits/"), "/tmp/digits");
  EXPECT_EQ(run_path("./digits"), "./digits");
  EXPECT_EQ(run_path("/"), "/");
  EXPECT_EQ(run_path("x//"), "x");
}

TEST_F(RunTest, RefusesAFolderInUse) {
  const std::string path = folder_ + "/r";
  EXPECT_NO_THROW(check_run_path(path, Earlier::refuse));
  fs::create_directories(path);
  EXPECT_NO_THROW(check_run_path(path, Earlier::refuse));  // empty
  write_file(path + "/notes.txt", "mine");
  EXPECT_MENTIONS(message_of<UsageError>([&] { check_run_path(path, Earlier::replace); }), "the folder is not a run");
  write_file(path + "/config.toml", "");
  const std::string used = message_of<UsageError>([&] { check_run_path(path, Earlier::refuse); });
  EXPECT_MENTIONS(used, "--overwrite");
  EXPECT_MENTIONS(used, "another --run");
  write_file(path + "/metrics.csv", "old");
  {
    RunDir run(path, Earlier::replace);
    EXPECT_TRUE(fs::exists(path + "/notes.txt"));
    EXPECT_FALSE(fs::exists(path + "/metrics.csv"));
    EXPECT_TRUE(fs::is_directory(path + "/exported"));
    write_file(run.file("config.toml"), "");
    fs::remove(run.file("train.log"));  // as log rotation does
    EXPECT_MENTIONS(message_of<UsageError>([&] { RunDir(path, Earlier::resume); }), "another process is training");
    EXPECT_MENTIONS(message_of<UsageError>([&] { check_run_path(path, Earlier::replace); }),
                    "another process is training");
  }
  EXPECT_NO_THROW(check_run_path(path, Earlier::replace));
  EXPECT_MENTIONS(message_of<UsageError>([&] { check_run_path(path + "/notes.txt", Earlier::replace); }),
                  "a file has that name");
}

TEST_F(RunTest, AProcessThatIsEndingIsWaitedFor) {
  const std::string path = folder_ + "/r";
  std::optional<RunDir> killed(std::in_place, path, Earlier::refuse);
  write_file(path + "/config.toml", "");
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    killed.reset();
  });
  EXPECT_NO_THROW(check_run_path(path, Earlier::resume));
  end.join();
}

TEST_F(RunTest, ARunThatAnotherHoldsStaysAsItIs) {
  const std::string path = folder_ + "/r", log = path + "/train.log", lock = path + "/.lock";
  fs::create_directories(path);
  write_file(path + "/config.toml", "");
  write_file(log, "theirs");
  write_file(lock, "");
  const int other = ::open(lock.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(other, LOCK_SH | LOCK_NB), 0);  // only an attempt to take the lock shows whether it is held
  EXPECT_MENTIONS(message_of<UsageError>([&] { RunDir(path, Earlier::replace); }), "another process is training");
  EXPECT_EQ(read_file(log), "theirs");
  EXPECT_TRUE(fs::exists(path + "/config.toml"));
  ::close(other);
  RunDir run(path, Earlier::replace);
  EXPECT_EQ(read_file(log), "");
  EXPECT_FALSE(fs::exists(path + "/config.toml"));
}

TEST_F(RunTest, AFolderThatCannotBeMadeIsAnIoError) {
  write_file(folder_ + "/file", "x");
  EXPECT_MENTIONS(message_of<IoError>([&] { RunDir(folder_ + "/file/run", Earlier::refuse); }), "cannot write");
}

TEST_F(RunTest, ConfigurationRoundTrip) {
  TrainOptions options;
  options.model.name = "resnet18", options.data.val_size = 9, options.execution.threads = 3, options.schedule.lr = 3e-4,
  options.data.dir = "/a \"quoted\"\\path\t", options.trainer.epochs = 7, options.run.name = "x";
  const std::string path = folder_ + "/c.toml";
  write_file(path, config_text(options));
  TrainOptions back;
  apply_settings(back, {read_config(path)});
  for (const auto& [option, value] : values_of(options))
    if (option->is_recorded()) {
      EXPECT_EQ(option_text(back, option->name), value) << option->name;
    }
  EXPECT_TRUE(back.run.name.empty());  // not a setting of the training
}

TEST_F(RunTest, ABaseLearningRateGrowsWithTheBatchUntilALearningRateIsGiven) {
  const std::string path = folder_ + "/c.toml";
  const auto read = [&](TrainOptions options, const std::string& content) {
    write_file(path, content);
    apply_settings(options, {read_config(path)});
    return options;
  };
  TrainOptions start;
  start.model.name = "mlp", start.execution.threads = 1, start.data.val_size = 0;
  TrainOptions preset = read(start, "base-lr = 0.12\nbatch-size = 512");
  EXPECT_EQ(preset.schedule.lr, 0.24);
  EXPECT_EQ(read(preset, "batch-size = 128").schedule.lr, 0.06);
  const TrainOptions given = read(preset, "batch-size = 128\nlr = 0.1");
  EXPECT_EQ(given.schedule.lr, 0.1);
  EXPECT_EQ(given.schedule.base_lr, 0);
  EXPECT_EQ(read({}, config_text(preset)).schedule.lr, 0.24);
  EXPECT_EQ(read({}, config_text(preset)).schedule.base_lr, 0.12);
  EXPECT_EQ(read(preset, config_text(given)).schedule.lr, 0.1);
  preset.trainer.batch_size_per_rank = 32;
  EXPECT_EQ(resolve(preset, 2).schedule.lr, 0.03);
  preset.schedule.lr_scale = "linear";
  EXPECT_MENTIONS(message_of<UsageError>([&] { resolve(preset, 2); }),
                  "--lr-scale linear: --base-lr already scales with the batch");
}

TEST_F(RunTest, ConfigurationErrors) {
  const std::string path = folder_ + "/c.toml";
  const auto error = [&](const std::string& content) {
    write_file(path, content);
    TrainOptions options;
    std::string message;
    try {
      apply_settings(options, {read_config(path)});
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  };
  EXPECT_EQ(error("batch_size = 32\nlr = 1"), "");  // underscores, and a whole number instead of a real number
  EXPECT_MENTIONS(error("# one\nepoch = 3"), "c.toml:2: unknown key 'epoch'; did you mean epochs?");
  EXPECT_MENTIONS(error("zzzzzz = 3"), "train --help");
  EXPECT_MENTIONS(error("overwrite = true"), "belongs on the command line");
  EXPECT_MENTIONS(error("optimizer = 'adma'"), "did you mean adam?");
  EXPECT_MENTIONS(error("epochs = 'many'"), "expected a whole number of at least 1");
  EXPECT_MENTIONS(error("batch-size = 0"), "of at least 1");
  EXPECT_MENTIONS(error("dropout = 1.0"), "and below 1");
  EXPECT_MENTIONS(error("lr = nan"), "expected a number");
  EXPECT_MENTIONS(error("lr = [1]"), "expected a string, a number");
  EXPECT_MENTIONS(error("[optimizer]\nlr = 1"), "a table 'optimizer'");
  EXPECT_MENTIONS(error("lr = = 1"), "not valid TOML");
  EXPECT_MENTIONS(error("lr = 1\nbase_lr = 1"), "c.toml: --lr and --base-lr: --lr is computed from --base-lr");
  EXPECT_THROW(read_config(folder_ + "/absent.toml"), IoError);
}

TEST(Options, EveryCommittedConfigurationIsValid) {
  for (const auto& entry : fs::directory_iterator(fs::path(RINGTAPE_SOURCE_DIR) / "configs")) {
    if (entry.is_directory()) continue;  // of presets: ssl_methods_test.cpp
    TrainOptions options;
    EXPECT_NO_THROW(apply_settings(options, {read_config(entry.path().string())})) << entry.path();
  }
}

TEST(Options, EachNameOnceInAComponentAndEveryDefaultInRange) {
  std::set<std::tuple<std::string, std::string, Learning>> names;
  for (const Option& option : train_options()) {
    EXPECT_TRUE(names.insert({option.name, option.group.name, option.group.learning}).second)
        << option.name << " of " << option.group.name;
    TrainOptions options;
    const bool unlabelled = option.group.learning == Learning::self_supervised && option.name != std::string("method");
    if (unlabelled) options.method.name = "simclr";
    if (!option.group.name.empty()) set_option(options, option.group.kind, option.group.name, option.group.kind);
    EXPECT_EQ(option_text(options, option.name), option.initial) << option.name;
    if (!option.info.automatic) {
      EXPECT_NO_THROW(set_option(options, option.name, option.initial, option.name));
    }
  }
}

TEST(Options, TextThatIsNotUtf8IsRefused) {
  TrainOptions options;
  options.data.set.name = "mnist";
  for (const char* good : {"/a", "/caf\xc3\xa9", "/\xe2\x82\xac", "/\xf0\x9f\x8e\x88"}) {
    options.data.dir = good;
    EXPECT_NO_THROW(resolve(options)) << good;
  }
  for (const char* bad : {"/caf\xe9", "/\xc0\xaf", "/\xed\xa0\x80", "/\xf5\x80\x80\x80", "/\xe2\x82", "/\x80"}) {
    options.data.dir = bad;
    EXPECT_MENTIONS(message_of<UsageError>([&] { resolve(options); }), "--data-dir: is not UTF-8");
  }
}

TEST(Options, ContradictionsAreRefused) {
  TrainOptions options;
  options.schedule.warmup_epochs = 6;
  EXPECT_THROW(resolve(options), UsageError);
  options = {};
  options.execution.device = "gpu";
  EXPECT_THROW(resolve(options), UsageError);
}

TEST(Tally, CountsHitsAndWeighsLosses) {
  Tally tally;
  const Tensor a = from_host(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 9}, {2, 7});
  tally.add(from_host(std::vector<float>{1}, {}), a, from_host(std::vector<int64_t>{6, 6}, {2}));  // both top-1
  tally.add(from_host(std::vector<float>{4}, {}), a.window({1, 7}, {7, 1}),
            from_host(std::vector<int64_t>{2}, {1}));  // fifth
  tally.finish();
  EXPECT_EQ(tally.samples(), 3);
  EXPECT_DOUBLE_EQ(tally.top1(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(tally.top5(), 1);
  EXPECT_DOUBLE_EQ(tally.loss(), 2);
  EXPECT_TRUE(std::isnan(Tally().loss()));
  Tally strided;
  strided.add(from_host(std::vector<float>{1}, {}),
              from_host(std::vector<float>{1, 9, 5, 2}, {2, 2}).window({2, 2}, {1, 2}),  // rows (1, 5), (9, 2)
              from_host(std::vector<int64_t>{1, 7, 0, 7}, {4}).window({2}, {2}));
  strided.finish();
  EXPECT_DOUBLE_EQ(strided.top1(), 1);
}

TEST(Time, LengthsAreToldByTheirTwoLargestUnits) {
  const std::pair<double, const char*> cases[] = {
      {0, "0 s"},    {59.4, "59 s"},        {59.6, "1 min"}, {90, "2 min"},      {3569, "59 min"},
      {3580, "1 h"}, {12000, "3 h 20 min"}, {86399, "1 d"},  {90000, "1 d 1 h"}, {3e6, "34 d 17 h"},
      {-1, "0 s"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(duration_text(seconds), text) << seconds;
}

TEST(Time, WhatIsLeftFollowsFromTheStepsSoFar) {
  EXPECT_EQ(TimeLeft(5, 100).seconds(5), 0);
  const TimeLeft left(10, 110);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const double after_one = left.seconds(11), after_ten = left.seconds(20);
  EXPECT_GE(after_one, 0.030 * 99);
  EXPECT_GE(after_ten, 0.003 * 90);
  EXPECT_LT(after_ten, after_one);
  EXPECT_EQ(left.seconds(110), 0);
}

TEST(Progress, TextFitsTheWidth) {
  EXPECT_EQ(progress_text("epoch 1/5", 164, 391, 12.3, "loss 1.23", 100, false),
            "epoch 1/5:  41%|############                  | 164/391 [00:12<00:17, 13.33 batches/s, loss 1.23]");
  EXPECT_MENTIONS(progress_text("reading", 5, 10, 1, "", 100, false, "images"), "5.00 images/s");
  EXPECT_NE(progress_text("test", 0, 10, 0, "", 60, false).find("| 0/10 [00:00<?, "), std::string::npos);
  for (int width : {10, 40, 60, 80, 200})
    EXPECT_LT(int(progress_text("epoch 1/5", 3, 7, 4000, "loss 1.2", width, false).size()), width);
  EXPECT_NE(progress_text("x", 7, 7, 1, "", 80, true).find("█"), std::string::npos);
}

}  // namespace
}  // namespace ringtape
