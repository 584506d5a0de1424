// The checkpoints of a run: what counts as a checkpoint, which are removed and which stay, and reading them.
#include "train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "core/log.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"

// Replaces the system's function, for the library under test too.
static bool no_folder_syncs = false;
static int umask_calls = 0;
extern "C" int fsync(int fd) {
  struct stat what {};
  if (no_folder_syncs && ::fstat(fd, &what) == 0 && S_ISDIR(what.st_mode)) return errno = EIO, -1;
  return int(::syscall(SYS_fsync, fd));
}
extern "C" mode_t umask(mode_t mask) noexcept { return ++umask_calls, mode_t(::syscall(SYS_umask, mask)); }

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("ringtape_checkpoint_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    set_log_sink([this](const std::string& line) { log_ += line + "\n"; });
  }
  void TearDown() override {
    no_folder_syncs = false;
    set_log_sink({});
    fs::remove_all(folder_);
  }

  static TrainState state(int64_t step) {
    TrainState s;
    s.step = step, s.epoch = step / 10, s.batch = step % 10;
    s.tally = {8, 2, 3, 1.5};
    s.lengths = {{"metrics.jsonl", 100}};
    return s;
  }
  std::vector<TensorFile> files() const {
    return {{"model.safetensors", {NamedTensor{"w", from_host(std::vector<float>{1, 2, 3}, {3})}}}};
  }
  std::string save(int64_t step, int64_t keep = 9) const {
    return Checkpoints(folder_, keep).save(state(step), files(), course_);
  }
  // The step from which a training would resume; -1: it would start.
  int64_t newest() {
    said_.clear();
    const auto found = Checkpoints(folder_, 9).newest(course_, [this](const std::string& why) { said_ += why + "\n"; });
    return found ? found->state.step : -1;
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.insert(entry.path().filename().string());
    return out;
  }
  void damage(const std::string& name) const { fs::resize_file(path(name) + "/model.safetensors", 10); }
  // Changes state.json and updates its checksum, since anybody can compute a checksum.
  template <class Change> void edit(const std::string& name, Change&& change) const {
    const std::string file = path(name) + "/state.json";
    Json json = parse_json(read_file(file));
    json.erase("crc32");
    change(json);
    const std::string text = json.text(2);
    char crc[9];
    std::snprintf(crc, sizeof crc, "%08lx", ::crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
    json["crc32"] = crc;
    write_file(file, json.text(2) + "\n");
  }

  std::string folder_, log_, said_;
  TrainOptions options_;
  Course course_{kept_settings(options_),
                 [this](const Course::Texts& before) { return changed_settings(options_, before); },
                 {30, 5, "12345678", "aaaaaaaa"},
                 10,
                 {"model.safetensors"}};
};

TEST_F(CheckpointTest, WhatIsNotOneIsNeitherUsedNorTouched) {
  save(2), save(4);
  const auto copy = [&](const std::string& from, const std::string& to) {
    fs::copy(path(from), path(to), fs::copy_options::recursive);
  };
  copy("step-00000004", "step-00000004.bak");
  copy("step-00000004", "step-00000004.tmp");
  copy("step-00000002", "step-00000002-copy");
  copy("step-00000004", "step-keep-this");
  copy("step-00000004", "step-4");
  copy("step-00000004", "step-000000004");
  copy("step-00000004", "step-00000099");  // its state.json has another step
  copy("step-00000004", "aside-step-00000003");
  copy("step-00000004", "step-99999999999999999999999999");
  fs::create_directories(path("step-best-of-all"));
  write_file(path("step-best-of-all/notes.txt"), "mine");
  fs::create_directories(path("step-20261122"));
  write_file(path("step-20261122/notes.txt"), "mine");
  write_file(path("step-00000012"), "mine");
  fs::create_directory_symlink("step-00000002", path("step-00000013"));
  std::set<std::string> others = names();
  for (const char* ours : {"step-00000002", "step-00000004", "last"}) others.erase(ours);
  EXPECT_EQ(newest(), 4);
  EXPECT_MENTIONS(said_, "step-00000099/state.json: holds step 4");
  save(6, 1), save(8, 1);
  std::set<std::string> expected = others;
  for (const char* ours : {"step-00000008", "last"}) expected.insert(ours);
  EXPECT_EQ(names(), expected);
  EXPECT_EQ(read_file(path("step-best-of-all/notes.txt")), "mine");
  Checkpoints(folder_, 1).remove_all();
  EXPECT_EQ(names(), others);
}

TEST_F(CheckpointTest, WhatHasTheNameThatOneIsToGetIsSetAsideForGood) {
  fs::create_directories(path("step-00000004"));
  write_file(path("step-00000004/notes.txt"), "mine");
  for (const int64_t step : {4, 5, 6, 7}) save(step);
  EXPECT_EQ(read_file(path("aside-step-00000004/notes.txt")), "mine");
  EXPECT_EQ(newest(), 7);
}

TEST_F(CheckpointTest, LaterOnesStayAsideForOneMoreSave) {
  for (const int64_t step : {2, 4, 6, 8}) save(step);
  damage("step-00000006"), damage("step-00000008");
  EXPECT_EQ(newest(), 4);
  EXPECT_MENTIONS(said_, "step-00000008/model.safetensors: damaged");
  save(5);
  EXPECT_EQ(names(), (std::set<std::string>{"aside-step-00000006", "aside-step-00000008", "last", "step-00000002",
                                            "step-00000004", "step-00000005"}));
  EXPECT_MENTIONS(
      log_, "step-00000008: belongs to another course of the training; renamed to " + path("aside-step-00000008"));
  save(6);
  EXPECT_EQ(names(),
            (std::set<std::string>{"last", "step-00000002", "step-00000004", "step-00000005", "step-00000006"}));
  EXPECT_MENTIONS(log_, "removed " + path("aside-step-00000006"));
  damage("step-00000006");
  save(6);  // it was found damaged
  EXPECT_TRUE(fs::exists(path("aside-step-00000006")));
  EXPECT_EQ(newest(), 6);
  save(7);
  EXPECT_FALSE(fs::exists(path("aside-step-00000006")));
}

TEST_F(CheckpointTest, SettlingBringsLinksAndNumberUpToDate) {
  for (const int64_t step : {2, 4, 6, 8}) save(step);
  fs::remove(path("last"));
  fs::create_directory_symlink("step-00000004", path("last"));
  fs::create_directory_symlink("step-00000001", path("best"));  // a dangling link
  TrainState now = state(8);
  now.best = TrainState::Best{2, 0.5};
  Checkpoints(folder_, 2).settle(now);
  EXPECT_EQ(fs::read_symlink(path("last")), "step-00000008");
  EXPECT_EQ(fs::read_symlink(path("best")), "step-00000002");
  EXPECT_EQ(names(), (std::set<std::string>{"best", "last", "step-00000002", "step-00000006", "step-00000008"}));
  fs::remove(path("last"));
  write_file(path("last"), "mine");
  Checkpoints(folder_, 2).settle(now);
  EXPECT_EQ(read_file(path("last")), "mine");
}

TEST_F(CheckpointTest, AFolderThatCannotBePutOnTheDiskEndsTheSaveBeforeAnythingGoes) {
  save(2, 1);
  no_folder_syncs = true;
  EXPECT_MENTIONS(message_of<IoError>([&] { save(4, 1); }), "cannot write: Input/output error");
  EXPECT_TRUE(fs::exists(path("step-00000002/state.json")));
  EXPECT_THROW(write_file(path("x"), "x"), IoError);
  EXPECT_THROW(make_folder(path("a/b")), IoError);
  no_folder_syncs = false;
  EXPECT_GE(newest(), 2);
  make_folder(path("c/d"));
  EXPECT_TRUE(fs::is_directory(path("c/d")));
}

TEST_F(CheckpointTest, NothingOfAStateIsBelieved) {
  const int64_t huge = std::numeric_limits<int64_t>::max(), low = std::numeric_limits<int64_t>::min();
  const auto at = [](const char* path, const Json& value) {
    return [path, value](Json& json) {
      Json* at = &json;
      std::istringstream keys(path + 1);
      for (std::string key; std::getline(keys, key, '/');) at = &(*at)[key];
      *at = value;
    };
  };
  const std::vector<std::pair<std::string, std::function<void(Json&)>>> changes = {
      {"batch: expected a whole number of at least 0 and at most 9007199254740992, got -3", at("/state/batch", -3)},
      {"batch 11 of an epoch of 10", at("/state/batch", 11)},
      {"batch 1000000000 of an epoch of 10", at("/state/batch", 1'000'000'000)},
      {"step 14 is not batch 4 after 0 epochs of 10", at("/state/epoch", 0)},
      {"epoch: expected a whole number", at("/state/epoch", -5)},
      {"epoch: expected a whole number", at("/state/epoch", huge)},
      {"epoch: expected a whole number", at("/state/epoch", 1.0)},
      {"is not batch 4 after 4503599627370496 epochs", at("/state/epoch", int64_t{1} << 52)},
      {"step: expected a whole number", at("/state/step", low)},
      {"step: expected a whole number", at("/state/step", huge)},
      {"step: expected a whole number", at("/state/step", uint64_t{1} << 63)},
      {"step: expected a whole number of at least 0 and at most 9007199254740992, got 1e+300",
       at("/state/step", 1e300)},
      {"state: step: expected a whole number", at("/state/step", "14")},
      {"holds step 13, which does not match the name of the checkpoint", at("/state/step", 13)},
      {"tally: samples: expected a whole number", at("/state/tally/samples", -1)},
      {"tally: top1: expected a whole number of at least 0 and at most 3, got 9", at("/state/tally/top1", 9)},
      {"tally: loss: expected a number", at("/state/tally/loss", nullptr)},
      {"seconds: data: expected a number of at least 0", at("/state/seconds/data", -1e9)},
      {"random: stream: expected a whole number", at("/state/random/stream", -1)},
      {"counters: expected a list", at("/state/counters", 3)},
      {"counters: expected a whole number", at("/state/counters", {1, -1})},
      {"parameter_steps: expected a whole number of at least 0 and at most 14, got 15",
       at("/state/parameter_steps", {1, 15})},
      {"best: step: expected a whole number of at least 0 and at most 14",
       at("/state/best", {{"step", 15}, {"top1", 0.5}})},
      {"best: top1: expected a number of at least 0 and at most 1", at("/state/best", {{"step", 5}, {"top1", 1.5}})},
      {"lengths: metrics.jsonl: expected a whole number", at("/state/lengths/metrics.jsonl", -1)},
      {"lengths: '../x' is not the name of a file", [](Json& json) { json["state"]["lengths"]["../x"] = 1; }},
      {"state: expected an object, got a list", at("/state", Json::list())},
      {"has no state", [](Json& json) { json.erase("state"); }},
      {"has no epoch", [](Json& json) { json["state"].erase("epoch"); }},
      {"schema: expected a whole number of at least 1, got \"1\"", at("/schema", "1")},
      {"files: '../../../../etc/passwd' does not belong to a checkpoint",
       [](Json& json) { json["files"]["../../../../etc/passwd"] = 1; }},
      {"files: has no model.safetensors", [](Json& json) { json["files"] = Json::object(); }},
      {"bytes: expected a whole number", at("/files/model.safetensors/bytes", -1)},
      {"crc32: expected a string", at("/files/model.safetensors/crc32", 7)},
      {"settings: expected an object, got 3", at("/settings", 3)},
      {"settings: lr: expected a string", at("/settings/lr", 3)},
      {"data: train: expected a whole number", at("/data/train", -3)},
  };
  for (const auto& [why, change] : changes) {
    save(4), save(14);
    edit("step-00000014", change);
    EXPECT_EQ(newest(), 4) << why;
    EXPECT_MENTIONS(said_, path("step-00000014/state.json"));
    EXPECT_MENTIONS(said_, why);
    EXPECT_EQ(said_.find("json.exception"), std::string::npos) << said_;
    fs::remove_all(folder_);
  }
}

TEST_F(CheckpointTest, AStateThatIsNoneCostsNothing) {
  save(4), save(14);
  const std::string file = path("step-00000014/state.json");
  const auto expect_refused = [&](const std::string& why) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(newest(), 4) << why;
    EXPECT_MENTIONS(said_, file);
    EXPECT_MENTIONS(said_, why);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << why;
  };
  write_file(file, std::string(60'000, '['));
  expect_refused("nested too deep");
  write_file(file, std::string(60'000, '[') + std::string(60'000, ']'));
  expect_refused("nested too deep");
  write_file(file, "{\"crc32\": \"0\xff\"}");
  expect_refused("not JSON");
  write_file(file, "");
  expect_refused("not JSON");
  write_file(file, "[1]");
  expect_refused("expected an object, got a list");
  write_file(file, "{\"crc32\": 3}");
  expect_refused("crc32: expected a string, got 3");
  write_file(file, std::string(5 << 20, ' '));
  expect_refused("longer than");
  fs::remove(file);
  fs::create_symlink("/dev/zero", file);
  expect_refused("not a file");
  fs::remove(path("step-00000004/model.safetensors"));
  fs::create_symlink("/dev/zero", path("step-00000004/model.safetensors"));
  const std::string none = message_of<FormatError>([&] { newest(); });
  EXPECT_MENTIONS(said_, "step-00000004/model.safetensors: not a file");
  EXPECT_MENTIONS(none, "none of the checkpoints can be used");
}

TEST_F(CheckpointTest, OneThatLacksItsStateDoesNotLetTheTrainingBegin) {
  save(4);
  fs::remove(path("step-00000004/state.json"));
  EXPECT_MENTIONS(message_of<FormatError>([&] { newest(); }), "none of the checkpoints can be used");
  EXPECT_MENTIONS(said_, "step-00000004/state.json: is missing");
}

TEST_F(CheckpointTest, SettingsAreComparedByName) {
  save(4);
  edit("step-00000004", [](Json& json) { json["settings"].erase("lr"), json["settings"].erase("nesterov"); });
  EXPECT_EQ(newest(), 4) << "an option that came later has its default";
  options_.schedule.lr = 0.5, options_.trainer.epochs = 90;
  EXPECT_MENTIONS(message_of<UsageError>([&] { newest(); }),
                  "step-00000004: was written with other settings than config.toml has now: --lr 0.5 (was 0.001); "
                  "restore that file");
  options_.schedule.lr = 1e-3;
  test::set(options_, {{"hidden", "3"}});
  EXPECT_MENTIONS(message_of<UsageError>([&] { newest(); }), "--hidden 3 (was 128)");
  test::set(options_, {{"hidden", "128"}});
  edit("step-00000004", [](Json& json) { json["settings"]["zigzag"] = "7"; });
  EXPECT_MENTIONS(message_of<UsageError>([&] { newest(); }),
                  "--zigzag, which this version of ringtape does not have (was 7)");
}

TEST_F(CheckpointTest, AnotherDataSetIsRefused) {
  save(4);
  edit("step-00000004", [](Json& json) { json.erase("data"); });
  EXPECT_EQ(newest(), 4) << "older ones do not have it";
  save(5);
  edit("step-00000005", [](Json& json) { json["data"].erase("pixels"); });
  EXPECT_EQ(newest(), 5) << "older ones do not have them";
  course_.data.pixels = "bbbbbbbb";
  save(6);
  course_.data.pixels = "aaaaaaaa";
  EXPECT_MENTIONS(message_of<UsageError>([&] { newest(); }), "of their pixels bbbbbbbb; this one has");
  save(7);
  course_.data = {60'000, 5, "87654321", "aaaaaaaa"};
  EXPECT_MENTIONS(message_of<UsageError>([&] { newest(); }),
                  "another data set, of 30 training and 5 test images, CRC-32 of their labels 12345678, of their "
                  "pixels aaaaaaaa; this one has 60,000 training and 5 test images, CRC-32 of their labels 87654321, "
                  "of their pixels aaaaaaaa");
}

TEST_F(CheckpointTest, OneOfANewerVersionIsNotPassedOver) {
  save(4), save(5);
  edit("step-00000005", [](Json& json) { json["schema"] = 2; });
  EXPECT_MENTIONS(message_of<UsageError>([&] { newest(); }),
                  "written by a newer version of ringtape: schema 2, this one reads 1");
}

TEST_F(CheckpointTest, AFileTakesItsModeWithoutTouchingTheMask) {
  const mode_t before = ::umask(027);
  umask_calls = 0;
  write_file(path("x"), "x");
  AtomicFolder folder(path("y"));
  folder.commit();
  EXPECT_EQ(umask_calls, 0) << "what another thread makes at that moment would get another mode";
  ::umask(before);
  struct stat what {};
  ASSERT_EQ(::stat(path("x").c_str(), &what), 0);
  EXPECT_EQ(what.st_mode & 0777, 0640u);
}

TEST(TemporaryName, IsKnownByItsOwnMark) {
  const std::string name = temporary_name("runs/r/config.toml");
  EXPECT_TRUE(name.starts_with("runs/r/config.toml.ringtape-"));
  EXPECT_TRUE(is_temporary_name(name));
  EXPECT_NE(name, temporary_name("runs/r/config.toml"));
  for (const char* other :
       {"config.toml.backup", "model.safetensors.sha256", "step-00000004.tmp", ".ringtape-abcdef.tmp",
        "x.ringtape-abcdef.tmp.bak", "x.ringtape-abc.tmp", "x.ringtape-abc/ef.tmp"})
    EXPECT_FALSE(is_temporary_name(other)) << other;
}

}  // namespace
}  // namespace ringtape
