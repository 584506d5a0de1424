// The timeline of a step: the ranks' data, the alignment of their clocks, the files.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/support.h"
#include "tests/support/xml.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/report/svg.h"
#include "train/trace/timeline.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

RankTimeline rank_at(const std::string& clock, int64_t origin) {
  return {clock,
          {{"forward", origin, origin + 10},
           {"backward", origin + 10, origin + 30},
           {"wait", origin + 30, origin + 34},
           {"optimizer", origin + 34, origin + 40}},
          {{4096, origin + 15, origin + 16, origin + 22}, {512, origin + 29, origin + 30, origin + 34}}};
}

TEST(Timeline, ClocksOfOneMachineAreOne) {
  const StepTimeline t = together("", 3, {rank_at("a", 1000), rank_at("a", 1004), rank_at("b", 77), rank_at("b", 75)});
  const std::vector<int64_t> begins = {0, 4, 2, 0};
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(t.ranks[r].phases[0].begin, begins[r]);
    EXPECT_EQ(t.ranks[r].buckets[1].ready, begins[r] + 29);
  }
  EXPECT_EQ(t.end(), 44);
}

TEST(Timeline, TextReadsBackAsItself) {
  const RankTimeline a = rank_at("boot/time:1", int64_t{1} << 60), b = RankTimeline::parse(a.text());
  EXPECT_EQ(b.text(), a.text());
  EXPECT_EQ(b.phases[2].name, "wait");
  EXPECT_EQ(b.buckets[1].end, (int64_t{1} << 60) + 34);
}

TEST(Timeline, PictureIsWellFormedAndNamesWhatItShows) {
  const std::string svg = timeline_picture(together("a <b> & \"c\"", 3, {rank_at("a", 0), rank_at("a", 2)}));
  test::expect_xml(svg);
  for (const char* word : {"a &lt;b&gt; &amp; &quot;c&quot;, step 3, 2 ranks", ">rank 0<", ">rank 1<",
                           ">communication<", "bucket 1, 0.5 kB", "waits for gradients", "prefers-color-scheme:dark"})
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  RankTimeline alone = rank_at("a", 0);
  alone.buckets.clear();
  EXPECT_EQ(timeline_picture(together("", 1, {alone})).find(">communication<"), std::string::npos);
  test::expect_xml(timeline_picture(together("", 1, {})));
}

TEST(Svg, TicksAreRound) {
  EXPECT_EQ(ticks(0, 100, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(ticks(1, 5, 5), (std::vector<double>{1, 2, 3, 4, 5}));
  EXPECT_EQ(ticks(2, 2, 5), (std::vector<double>{2}));
  for (const double high : {0.013, 7.0, 18.0, 949.0, 1e6}) {
    EXPECT_LE(ticks(0, high, 11).size(), 11u) << high;
    EXPECT_GE(ticks(0, high, 11).size(), 4u) << high;
  }
}

class TraceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_trace_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  int train(const std::string& flags) {
    const std::string command =
        "cd " + folder_.string() + " && env -u RINGTAPE_THREADS " + RINGTAPE_BINARY +
        " train --train-size 300 --test-size 60 --epochs 1 --batch-size 32 --hidden 16 --run r " + flags +
        " >out 2>err </dev/null";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string file(const std::string& name) const { return read_file((folder_ / name).string()); }

  fs::path folder_;
};

TEST_F(TraceTest, AStepOfTwoRanks) {
  ASSERT_EQ(train("--devices 2 --bucket-mb 0.0005 --trace step"), 0) << file("err");
  const Json trace = parse_json(file("step.json"));
  EXPECT_EQ(trace["otherData"]["step"], 3);
  std::map<std::pair<int, int>, std::vector<Json>> lanes;  // by rank and thread
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X") lanes[{e["pid"].get<int>(), e["tid"].get<int>()}].push_back(e);
  ASSERT_EQ(lanes.size(), 4u);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<Json>&phases = lanes[{rank, 0}], &buckets = lanes[{rank, 1}];
    std::vector<std::string> names;
    double at = 0;
    for (const Json& p : phases) {
      names.push_back(p["name"].get<std::string>());
      EXPECT_GE(p["ts"].get<double>(), at - 1e-3);  // microseconds in f32
      EXPECT_GE(p["dur"].get<double>(), 0);
      at = p["ts"].get<double>() + p["dur"].get<double>();
    }
    EXPECT_EQ(names, (std::vector<std::string>{"forward", "backward", "wait", "optimizer"}));
    ASSERT_EQ(buckets.size(), 2u);  // the last layer; the first, which is larger than a bucket
    // While the gradients of the first layer are computed.
    EXPECT_LT(buckets[0]["args"]["ready_us"], buckets[1]["args"]["ready_us"]);
    const double begin = phases[1]["ts"].get<double>(),
                 waited = phases[2]["ts"].get<double>() + phases[2]["dur"].get<double>();
    double before = 0, bytes = 0;
    for (const Json& b : buckets) {
      const double ready = b["args"]["ready_us"].get<double>(), sent = b["ts"].get<double>(),
                   back = sent + b["dur"].get<double>();
      EXPECT_GE(ready, begin - 1e-3);
      EXPECT_GE(sent, ready - 1e-3);
      EXPECT_GE(sent, before);
      EXPECT_LE(back, waited + 1e-3);
      before = sent;
      bytes += b["args"]["bytes"].get<double>();
    }
    EXPECT_GE(bytes, 4 * (3072 * 16 + 16 + 160 + 10));
  }
  test::expect_xml(file("step.svg"));
  EXPECT_NE(file("step.svg").find("mlp on cpu:0, step 3, 2 ranks"), std::string::npos);

  // The run's figures of its ranks.
  std::ifstream lines((folder_ / "runs/r/metrics.jsonl").string());
  double sent = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json m = parse_json(line);
    EXPECT_EQ(m["ranks"], 2) << line;
    if (m["split"] == "train") sent = m["comm_bytes"].get<double>();
    EXPECT_EQ(m.contains("comm_bytes"), m["split"] == "train" || m["split"] == "summary") << line;
    if (!m.contains("comm_bytes")) continue;
    EXPECT_EQ(m["comm_bytes"], sent);
    EXPECT_GE(sent, 9 * 4 * (3072 * 16 + 16 + 160 + 10));
    EXPECT_LT(sent, 9 * 4 * (3072 * 16 + 16 + 160 + 10 + 64));
    EXPECT_GT(m["comm_s"], 0);
    EXPECT_GE(m["exposed_s"], 0);
    EXPECT_LE(m["exposed_s"], m["split"] == "train" ? m["seconds"] : m["train_s"]);
  }
  EXPECT_NE(file("out").find("  comm 0.2 MB per step, "), std::string::npos) << file("out");
}

TEST_F(TraceTest, AStepOfOneRankHasNoCommunication) {
  ASSERT_EQ(train("--trace alone --trace-step 9 --accumulate 2"), 0) << file("err");
  const Json trace = parse_json(file("alone.json"));
  std::vector<std::string> names;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X") names.push_back(e["name"].get<std::string>());
  EXPECT_EQ(names, (std::vector<std::string>{"forward", "backward", "forward", "backward", "optimizer"}));
  EXPECT_EQ(file("runs/r/metrics.jsonl").find("comm_bytes"), std::string::npos);
}

TEST_F(TraceTest, AStepThatDoesNotCome) {
  EXPECT_EQ(train("--trace x --trace-step 10"), 2);
  EXPECT_NE(file("err").find("--trace-step 10: the training has only 9 steps"), std::string::npos) << file("err");
  ASSERT_EQ(train(""), 0);
  EXPECT_EQ(train("--resume --epochs 2 --trace x --trace-step 9"), 2);
  EXPECT_NE(file("err").find("--trace-step 9: the run is already at step 9; choose a later step"), std::string::npos)
      << file("err");
  EXPECT_NE(train("--overwrite --trace nowhere/x"), 0);
  EXPECT_NE(file("err").find("nowhere/x.json: cannot write"), std::string::npos) << file("err");
}

}  // namespace
}  // namespace ringtape
