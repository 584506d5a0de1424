// Runs whose files somebody moves, removes or damages, during the training or afterwards.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "tests/support/jobs.h"

namespace ringtape {
namespace {

using namespace test;

class ChangedRunTest : public JobTest {
 protected:
  fs::path file(const std::string& name) const { return run_folder("r") / name; }
  pid_t endless() {
    const pid_t training = start("ringtape " + kEndless + " --run r");
    await_epoch("r", training);
    return training;
  }
};

TEST_F(ChangedRunTest, MetricsThatAreTakenAwayEndTheTraining) {
  for (const char* name : {"metrics.jsonl", "metrics.csv", ""}) {
    fs::remove_all(run_folder("r"));
    const pid_t training = endless();
    fs::rename(file(name), folder_ / "away");
    EXPECT_EQ(wait(training), 1) << name;
    EXPECT_MENTIONS(log(), "somebody has moved, removed or replaced it during the training");
    EXPECT_FALSE(fs::exists(file(name))) << "it was made anew";
    fs::remove_all(folder_ / "away");
  }
}

TEST_F(ChangedRunTest, WithoutItsLockARunIsStillItsOwn) {
  const pid_t training = endless();
  fs::remove(file(".lock"));
  for (const char* way : {"--resume", "--overwrite"}) {
    EXPECT_EQ(wait(start("ringtape " + kTraining + " --run r " + way, "second")), 2);
    EXPECT_MENTIONS(log("second"), "another process is training there");
  }
  ::kill(training, SIGTERM);
  EXPECT_EQ(wait(training), 75) << log();
}

// Opening a pipe waits until somebody opens its other end.
TEST_F(ChangedRunTest, APipeInPlaceOfAFileIsNamed) {
  ASSERT_EQ(run("ringtape " + kTraining + " --epochs 1 --run r"), 0) << log();
  for (const std::string name :
       {".lock", "train.log", "config.toml", "env.json", "data.json", "metrics.jsonl", "metrics.csv"}) {
    const std::string whole = read_file(file(name));
    fs::remove(file(name));
    ASSERT_EQ(::mkfifo(file(name).c_str(), 0600), 0);
    for (const char* way : {"--resume", "--overwrite"}) {
      EXPECT_EQ(run("ringtape " + kTraining + " --run r --epochs 2 " + way), 1) << name;
      EXPECT_MENTIONS(log(), name + ": is a pipe, which nobody may write or read; remove it");
    }
    fs::remove(file(name));
    write_file(file(name), whole);
  }
  EXPECT_EQ(run("ringtape " + kTraining + " --run r --epochs 2 --resume"), 0) << log();
}

TEST_F(ChangedRunTest, HalfOfWhatIsWrittenAnewSaysHowToMendIt) {
  ASSERT_EQ(run("ringtape " + kTraining + " --epochs 1 --run r"), 0) << log();
  const std::string whole = read_file(file("data.json"));
  std::ofstream(file("data.json")) << whole.substr(0, whole.size() / 2);
  EXPECT_EQ(run("ringtape " + kTraining + " --run r --epochs 2 --resume"), 1);
  EXPECT_MENTIONS(log(), "data.json: damaged: not JSON; bring it back, or remove it to have it written anew");
  std::string other = whole;  // one bit of a number
  other[other.find_first_of("123456789", other.find("mean"))] ^= 1;
  write_file(file("data.json"), other);
  EXPECT_EQ(run("ringtape " + kTraining + " --run r --epochs 2 --resume"), 1);
  EXPECT_MENTIONS(log(), "data.json: damaged: its numbers and names are not those of its checksum; bring it back, or");
  fs::remove(file("data.json"));
  EXPECT_EQ(run("ringtape " + kTraining + " --run r --epochs 2 --resume"), 0) << log();
  EXPECT_EQ(read_file(file("data.json")), whole);
  write_file(file("config.toml"), "");
  EXPECT_EQ(run("ringtape " + kTraining + " --run r --epochs 3 --resume"), 1);
  EXPECT_MENTIONS(log(), "config.toml: has no settings; bring it back, or start again with --overwrite");
}

TEST_F(ChangedRunTest, DamagedWeightsAreNoticed) {
  ASSERT_EQ(run("ringtape " + kTraining + " --epochs 1 --run r"), 0) << log();
  const std::string path = file("exported/model.safetensors").string(), whole = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  const size_t data = 8 + size_t(header);
  for (size_t at = data; at + 64 <= whole.size(); at += (whole.size() - data) / 7) {
    std::string damaged = whole;
    std::fill_n(damaged.begin() + long(at), 64, '\0');
    if (damaged == whole) continue;
    write_file(path, damaged);
    EXPECT_MENTIONS(message_of<FormatError>([&] { read_safetensors(path); }), "damaged: its numbers do not match");
    if (at > data) continue;
    for (const char* command : {"evaluate r", "embed r --out f.npy", "export r --out w.safetensors",
                                "train --weights runs/r/exported/model.safetensors --hidden 16 --run s"}) {
      EXPECT_EQ(run(std::string("ringtape ") + command), 1) << command << ", byte " << at;
      EXPECT_MENTIONS(log(), "model.safetensors: damaged: its numbers do not match the checksum in its metadata");
    }
  }
  write_file(path, whole);
  EXPECT_EQ(run("ringtape export r --out w.safetensors"), 0) << log();
  EXPECT_EQ(run("ringtape evaluate w.safetensors"), 0) << log();
}

}  // namespace
}  // namespace ringtape
