// The metrics files of a run: metrics.jsonl, metrics.csv and TensorBoard's events.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "tests/support/support.h"
#include "train/compare/finished_run.h"
#include "train/data/image/image_file.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/run/metrics_log.h"
#include "train/run/run_dir.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("ringtape_metrics_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(MetricsTest, MetricsFiles) {
  RunDir run(folder_ + "/r", Earlier::refuse);
  {
    MetricsLog log(run);
    Metrics m;
    m.split = "train", m.epoch = 2, m.step = 30, m.loss = std::numeric_limits<double>::quiet_NaN(), m.top1 = 0.5;
    m.images_per_s = std::numeric_limits<double>::infinity(), m.lr = 1e-4;
    log.write(m);
    m = {};
    m.split = "val", m.epoch = 2, m.step = 30, m.loss = 0.25, m.balanced = 0.75;
    log.write(m);
    Json summary = Json::object();
    summary["split"] = "summary";
    EXPECT_TRUE(log.finish(summary).contains(kMetricsCrc));
  }
  const std::string lines =
      "{\"split\":\"train\",\"epoch\":2,\"step\":30,\"loss\":\"nan\",\"top1\":0.5,\"lr\":0.0001,"
      "\"images_per_s\":\"inf\"}\n"
      "{\"split\":\"val\",\"epoch\":2,\"step\":30,\"loss\":0.25,\"balanced_accuracy\":0.75}\n";
  EXPECT_EQ(read_file(run.file("metrics.jsonl")),
            concat(lines, "{\"split\":\"summary\",\"metrics_crc32\":\"", Crc32().add(lines).str(), "\"}\n"));
  EXPECT_EQ(read_file(run.file("metrics.csv")),
            "split,epoch,step,loss,top1,top5,lr,images_per_s,seconds,data_s,forward_s,backward_s,optimizer_s,"
            "peak_bytes,grad_norm,loss_scale,ranks,comm_bytes,comm_s,exposed_s,spread,balanced_accuracy\n"
            "train,2,30,nan,0.5,,1e-04,inf,,,,,,,,,,,,,,\n"
            "val,2,30,0.25,,,,,,,,,,,,,,,,,,0.75\n");
}

TEST_F(MetricsTest, AFileOfAnEarlierVersionKeepsItsColumns) {
  const RunDir run(folder_ + "/r", Earlier::refuse);
  const std::string before = "split,epoch,step,loss,top1\ntrain,1,10,0.5,0.25\n";
  write_file(run.file("metrics.csv"), before);
  MetricsLog log(run, {{"metrics.csv", int64_t(before.size())}});
  Metrics m;
  m.split = "val", m.epoch = 1, m.step = 10, m.loss = 0.25, m.lr = 1, m.balanced = 0.75;
  log.write(m);
  EXPECT_EQ(read_file(run.file("metrics.csv")), before + "val,1,10,0.25,\n");
}

TEST_F(MetricsTest, WhatIsNoLineOfMetricsIsNamed) {
  const std::string path = folder_ + "/metrics.jsonl",
                    good = R"({"split":"val","epoch":1,"step":2,"loss":"nan","top1":0.5,"lr":"-inf"})";
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"split":1.5})", "split: expected a string, got 1.5"},
           {R"({"loss":1})", "has no split"},
           {R"({"split":"val","epoch":1.5})", "epoch: expected a whole number"},
           {R"({"split":"val","step":-1})", "step: expected a whole number of at least 0"},
           {R"({"split":"val","loss":"many"})", "loss: expected a number, got a string"},
           {R"({"split":"val","loss":[1]})", "loss: expected a number"},
           {R"([1])", "expected an object, got a list"},
           {R"({"split":"va)", "not JSON"},
           {std::string(50'000, '['), "nested too deep"},
           {"{\"split\":\"\xff\"}", "not JSON"}}) {
    write_file(path, good + "\n" + line + "\n" + good + "\n");
    const std::string said = message_of<FormatError>([&] { read_metrics(path); });
    EXPECT_MENTIONS(said, "metrics.jsonl:2: ");
    EXPECT_MENTIONS(said, why);
    std::vector<std::string> bad;
    const std::vector<Metrics> all = read_metrics(path, [&](const std::string& what) { bad.push_back(what); });
    EXPECT_EQ(bad, std::vector<std::string>{said + "; ignored"});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[1].step, 2);
    EXPECT_TRUE(std::isnan(*all[1].loss));
    EXPECT_TRUE(std::isinf(*all[1].lr) && *all[1].lr < 0);
  }
}

TEST_F(MetricsTest, ASummaryOfWrongTypesIsNamed) {
  EXPECT_FALSE(read_finished_run(folder_));
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"split":"summary","epoch":"2","step":3})", "epoch: expected a whole number of at least 1, got \"2\""},
           {R"({"split":"summary","epoch":2})", "the summary: has no step"},
           {R"({"split":"summary","epoch":0,"step":3})", "epoch: expected a whole number of at least 1, got 0"},
           {R"({"split":"summary","epoch":2,"step":3,"protocol":1})", "protocol: expected a string"},
           {R"({"split":"summary","epoch":2,"step":3,"seed":1.5})", "seed: expected a whole number"}}) {
    write_file(folder_ + "/metrics.jsonl", line + "\n");
    const std::string said = message_of<FormatError>([&] { read_finished_run(folder_); });
    EXPECT_MENTIONS(said, "metrics.jsonl: the summary: ");
    EXPECT_MENTIONS(said, why);
  }
  for (const std::string line : {R"({"split":1.5})", R"({"split":["summary"]})", R"({"split":"val"})", "[]", "x"}) {
    write_file(folder_ + "/metrics.jsonl", line + "\n");
    EXPECT_FALSE(read_finished_run(folder_)) << line;
  }
}

// The records of a run's events files, sorted by file name, read as TensorBoard does; without wall times.
static std::vector<std::vector<std::string>> read_events(const std::string& run) {
  std::set<std::string> paths;
  for (const auto& entry : fs::directory_iterator(run))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) paths.insert(entry.path().string());
  std::vector<std::vector<std::string>> out;
  for (const std::string& path : paths) {
    const std::string bytes = read_file(path);
    const auto number = [&]<class T>(size_t at, T) {
      T x{};
      std::memcpy(&x, bytes.data() + at, sizeof x);
      return x;
    };
    const auto checksum = [](std::string_view s) {
      const uint32_t c = crc32c(s);
      return (c >> 15 | c << 17) + 0xa282ead8u;
    };
    std::vector<std::string>& records = out.emplace_back();
    for (size_t at = 0; at + 16 < bytes.size();) {
      const auto length = size_t(number(at, uint64_t{}));
      EXPECT_EQ(number(at + 8, uint32_t{}), checksum(std::string_view(bytes).substr(at, 8)));
      const std::string record = bytes.substr(at + 12, length);
      EXPECT_EQ(number(at + 12 + length, uint32_t{}), checksum(record));
      EXPECT_EQ(record[0], '\x09');  // wall_time, a double
      records.push_back(record.substr(9));
      at += 16 + length;
    }
  }
  return out;
}
static const std::string kVersionRecord =
    "\x1a\x0d"
    "brain.Event:2";
// SessionLog.START (field 7, its status field 1, value 1) of step 0.
static const std::string kBeginRecord("\x10\0\x3a\x02\x08\x01", 6);

TEST_F(MetricsTest, EventsAreWhatTensorBoardReads) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  RunDir run(folder_ + "/r", Earlier::refuse);
  EventFile(run).write("train/loss", 300, 0.5);
  const std::string scalar =
      std::string("\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0a", 9) + "train/loss" + std::string("\x15\0\0\0\x3f", 5);
  EXPECT_EQ(read_events(run.path()), (std::vector<std::vector<std::string>>{{kVersionRecord, kBeginRecord, scalar}}));
}

// A field of a protobuf message with bytes in it; its rest follows them.
static std::string bytes_after(const std::string& record, std::string_view what) {
  const size_t at = record.find(what);
  return at == std::string::npos ? "" : record.substr(at + what.size());
}

TEST_F(MetricsTest, EventsHaveImagesHistogramsAndSettings) {
  RunDir run(folder_ + "/r", Earlier::refuse);
  Tensor pixels({2, 3, 3}, DType::u8);
  for (int i = 0; i < 18; ++i) pixels.data<uint8_t>()[i] = uint8_t(i * 13);
  {
    EventFile file(run);
    file.image("picture", 7, pixels);
    file.histogram("weights", 7, std::vector<float>{1, 2, 2, 4, NAN, INFINITY});
    file.histogram("equal", 7, std::vector<float>{3, 3});
    file.histogram("none", 7, {});
    file.settings({{"lr", 0.5}, {"model", "mlp"}, {"flip", true}});
  }
  std::vector<std::string> records = read_events(run.path())[0];
  ASSERT_EQ(records.size(), 6u);
  records.erase(records.begin() + 1);  // kBeginRecord
  // height 2, width 3, colorspace 3, then the PNG file
  const std::string image = bytes_after(records[1], "\x08\x02\x10\x03\x18\x03\x22");
  const Image seen = decode_image(image.substr(1), "the record");
  EXPECT_EQ(seen.size, (ImageSize{2, 3}));
  EXPECT_EQ(seen.rgb, std::vector<uint8_t>(pixels.data<uint8_t>(), pixels.data<uint8_t>() + 18));
  const auto doubles = [](const std::string& bytes, size_t count, size_t step) {
    std::vector<double> out(count);
    for (size_t i = 0; i < count; ++i) std::memcpy(&out[i], bytes.data() + i * step, sizeof(double));
    return out;
  };
  // Fields 1 to 5: least, greatest, number, sum, sum of squares; 6 and 7: 30 upper limits and numbers.
  const std::string histogram = bytes_after(records[2], "weights").substr(3);  // after the key and the length
  EXPECT_EQ(doubles(histogram.substr(1), 5, 9), (std::vector<double>{1, 4, 4, 9, 25}));
  const std::vector<double> limits = doubles(histogram.substr(45 + 3), 30, 8),
                            counts = doubles(histogram.substr(45 + 3 + 240 + 3), 30, 8);
  EXPECT_EQ(limits.back(), 4);
  EXPECT_DOUBLE_EQ(limits[0], 1.1);
  EXPECT_EQ(counts[0], 1);
  EXPECT_EQ(counts[9] + counts[10], 2);
  EXPECT_EQ(counts[29], 1);
  EXPECT_EQ(doubles(bytes_after(records[3], "equal").substr(4), 3, 9), (std::vector<double>{3, 3, 2}));
  EXPECT_NE(records[4].find("_hparams_/session_start_info"), std::string::npos);
  EXPECT_NE(records[4].find(std::string("\x0a\x02lr\x12\x09\x11\0\0\0\0\0\0\xe0\x3f", 15)), std::string::npos);
  EXPECT_NE(records[4].find("\x0a\x05model\x12\x05\x1a\x03mlp"), std::string::npos);
  EXPECT_NE(records[4].find("\x0a\x04"
                            "flip\x12\x02\x20\x01"),
            std::string::npos);
}

// SessionLog.START of step s: TensorBoard drops its records of step s and later. Its loader in Python takes the first
// one that it meets for the run's beginning.
TEST_F(MetricsTest, EventsOfATrainingThatGoesOnBeginAfterItsStep) {
  RunDir run(folder_ + "/r", Earlier::refuse);
  { EventFile first(run); }
  { EventFile(run, 299).write("a", 300, 0.5); }
  const std::string start = "\x10\xac\x02\x3a\x02\x08\x01", scalar = std::string(
                                                                "\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01"
                                                                "a\x15\0\0\0\x3f",
                                                                15);
  const auto all = read_events(run.path());  // made in the same second by the same process: still separate files
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (std::vector<std::string>{kVersionRecord, kBeginRecord}));
  EXPECT_EQ(all[1], (std::vector<std::string>{kVersionRecord, start, scalar}));
}

}  // namespace
}  // namespace ringtape
