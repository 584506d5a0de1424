// The checks and the output of `bench collectives`.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/bench/pattern.h"
#include "comm/bench/timing.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using comm::Collective;
using comm::Operation;

// Each rank's output, computed from all inputs only by the definitions in comm/algorithm.h.
std::vector<float> outcome(const Operation& o, const std::vector<std::vector<float>>& x, int rank) {
  const auto c = size_t(o.count), n = x.size(), r = size_t(rank);
  const auto sum = [&](size_t i) {
    float s = 0;
    for (const auto& each : x) s += each[i];
    return s;
  };
  std::vector<float> y(size_t(output_elements(o, int(n), rank)));
  for (size_t i = 0; i < y.size(); ++i) switch (o.kind) {
      case Collective::all_reduce:
      case Collective::reduce: y[i] = sum(i); break;
      case Collective::reduce_scatter: y[i] = sum(r * c + i); break;
      case Collective::broadcast: y[i] = x[0][i]; break;
      case Collective::scatter: y[i] = x[0][r * c + i]; break;
      case Collective::all_to_all: y[i] = x[i / c][r * c + i % c]; break;
      default: y[i] = x[i / c][i % c];
    }
  return y;
}

TEST(CollectivePattern, EveryWrongElementCounts) {
  using enum Collective;
  constexpr int n = 3;
  for (const Collective kind :
       {all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all}) {
    const Operation o{.kind = kind, .dtype = DType::f32, .count = 50};
    std::vector<std::vector<float>> x(n);
    for (int r = 0; r < n; ++r) {
      x[size_t(r)].resize(size_t(input_elements(o, n, r)));
      fill_input(x[size_t(r)].data(), o, n, r);
    }
    for (int r = 0; r < n; ++r) {
      std::vector<float> y = outcome(o, x, r);
      EXPECT_EQ(count_wrong(y.data(), o, n, r), 0) << o.str() << " rank " << r;
      for (float& element : y) element += 1;
      EXPECT_EQ(count_wrong(y.data(), o, n, r), int64_t(y.size())) << o.str() << " rank " << r;
    }
  }
}

TEST(CollectivePattern, AnAverageMayBeRounded) {
  const Operation avg{.kind = Collective::all_reduce, .dtype = DType::f32, .op = ReduceOp::avg, .count = 64};
  std::vector<float> y(64), x(64);
  for (int r = 0; r < 3; ++r) {
    fill_input(x.data(), avg, 3, r);
    for (size_t i = 0; i < 64; ++i) y[i] += x[i];
  }
  for (float& v : y) v *= 1.0f / 3;
  EXPECT_EQ(count_wrong(y.data(), avg, 3, 0), 0);
  for (float& v : y) v = v * 1.000001f + 1e-6f;
  EXPECT_EQ(count_wrong(y.data(), avg, 3, 0), 64);
}

class BenchTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("ringtape_collectives_" + std::to_string(::getpid()))).string();
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  int run(const std::string& flags) {
    const std::string command =
        "cd " + folder_ + " && " RINGTAPE_BINARY " bench collectives " + flags + " >out 2>err </dev/null";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string file(const std::string& name) const { return read_file(folder_ + "/" + name); }
  std::string folder_;
};

TEST_F(BenchTest, PrintsAndWritesItsFigures) {
  ASSERT_EQ(run("--ranks 3 -b 1K -e 4K -f 2 --iterations 2 --warmup 1 --check --json a.json"), 0) << file("err");
  EXPECT_MENTIONS(file("out"),
                  "#        size         count      type     redop    root        time    algbw    busbw  #wrong");
  EXPECT_MENTIONS(file("out"), "\n         1024           256       f32       sum      -1 ");
  EXPECT_MENTIONS(file("out"), "# Out of bounds values : 0 OK\n");
  const Json a = parse_json(file("a.json"));
  ASSERT_EQ(a["rows"].size(), 3u);
  for (const Json& row : a["rows"])
    for (const char* side : {"out_of_place", "in_place"}) {
      const Json& f = row[side];
      EXPECT_EQ(f["wrong"], 0);
      EXPECT_NEAR(f["algbw"].get<double>(), row["bytes"].get<double>() / f["us"].get<double>() * 1e-3, 1e-9);
      EXPECT_NEAR(f["busbw"].get<double>(), f["algbw"].get<double>() * 4 / 3, 1e-9);
    }
}

TEST_F(BenchTest, ComparesWithABaseline) {
  const std::string flags = "-b 64 -e 256 --iterations 2 --warmup 0 ";
  ASSERT_EQ(run(flags + "--json a.json"), 0) << file("err");
  Json a = parse_json(file("a.json"));
  const auto scaled = [&](double factor, const std::string& name) {
    Json b = a;
    for (Json& row : b["rows"])
      for (const char* side : {"out_of_place", "in_place"})
        row[side]["busbw"] = row[side]["busbw"].get<double>() * factor;
    write_file(folder_ + "/" + name, b.text());
  };
  scaled(1e-6, "slow.json");
  scaled(1e6, "fast.json");
  EXPECT_EQ(run(flags + "--baseline slow.json"), 0) << file("err");
  EXPECT_MENTIONS(file("out"), "# All bus bandwidths are at least 90 % of the baseline's");
  EXPECT_EQ(run(flags + "--baseline fast.json"), 1);
  EXPECT_MENTIONS(file("out"), "# SLOWER: 64 bytes out_of_place: ");
  EXPECT_EQ(run(flags + "--baseline slow.json --ranks 3"), 2);
  EXPECT_MENTIONS(file("err"), "--baseline slow.json: has ranks 2, this run has 3");
  write_file(folder_ + "/other.json", "[]");
  EXPECT_EQ(run(flags + "--baseline other.json"), 1);
  EXPECT_MENTIONS(file("err"), "other.json: not a file that --json has written");
  a["rows"][0]["out_of_place"]["busbw"] = "fast";
  write_file(folder_ + "/other.json", a.text());
  EXPECT_EQ(run(flags + "--baseline other.json"), 1);
  EXPECT_MENTIONS(file("err"), "other.json: rows: out_of_place: busbw: expected a number of at least 0, got \"fast\"");
}

TEST_F(BenchTest, WrongUsage) {
  for (const auto& [flags, part] :
       std::vector<std::pair<std::string, std::string>>{{"--op allreduce", "unknown collective 'allreduce'"},
                                                        {"--algorithm rnig", "unknown algorithm 'rnig'"},
                                                        {"--transport pigeon", "unknown transport 'pigeon'"},
                                                        {"--redop mean", "unknown reduction 'mean'"},
                                                        {"--dtype float", "float"},
                                                        {"--ranks 0", "--ranks: expected a whole number from 1"},
                                                        {"-b 16k", "-b: expected a number of bytes, as in 16K"},
                                                        {"-b 1K -e 16", "-e 16: expected at least -b, 1024"},
                                                        {"-b 2", "-b 2: expected at least 4 bytes, one f32"},
                                                        {"-f 1", "-f: expected a whole number from 2"}}) {
    EXPECT_EQ(run(flags), 2) << flags;
    EXPECT_MENTIONS(file("err"), part);
    EXPECT_EQ(file("out"), "");
  }
}

}  // namespace
}  // namespace ringtape
