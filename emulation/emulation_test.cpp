// The emulation itself: the errors that each mode finds in wrong kernels, and that it finds none in correct ones.
#include "emulation/emulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "emulation/bugs.h"
#include "emulation/bugs_expected.h"
#include "emulation/memory.h"
#include "emulation/traffic.h"

namespace ringtape::emulation_bugs {
static void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
}  // namespace ringtape::emulation_bugs

namespace ringtape::emulation {
namespace {

using emulation_bugs::Case;
using emulation_bugs::kSize;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAsan = true;
#else
constexpr bool kAsan = false;
#endif

constexpr Schedule kSchedules[] = {Schedule::forward, Schedule::reverse, Schedule::random};

struct Outcome {
  std::vector<Report> reports;
  bool right = true;  // y is as expected
};

Outcome execute(const Case& c, Schedule schedule, uint64_t seed = 1) {
  const Schedule before = emulation::schedule();
  set_schedule(schedule, seed);
  clear_reports();
  constexpr size_t bytes = kSize * sizeof(float);
  auto* const x = static_cast<float*>(reserve(bytes));
  auto* const y = static_cast<float*>(reserve(bytes));
  make_live(x);
  make_live(y);
  for (int i = 0; i < kSize; ++i) x[i] = float(i % 7 + 1);
  mark_initialised(x, bytes);
  c.run(x, y);
  Outcome out{reports(), true};
  for (int i = 0; c.expected && i < kSize; ++i) {
    const float expected = c.expected(i);
    if (!std::isnan(expected) && y[i] != expected) out.right = false;
  }
  release(x);
  release(y);
  clear_reports();
  set_schedule(before);
  return out;
}

// The places of the comments that name the bugs: "emulation/bugs.cu:41".
std::map<std::string, std::string> marked_places() {
  std::map<std::string, std::string> places;
  for (const std::string name : {"bugs.cu", "cases.cuh", "tensor_cases.cuh", "hopper_cases.cuh"}) {
    const std::string file = "emulation/" + name;
    std::ifstream in(RINGTAPE_SOURCE_DIR "/" + file);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      const size_t at = line.find("// BUG: ");
      if (at != std::string::npos) places[line.substr(at + 8)] = file + ":" + std::to_string(number);
    }
  }
  return places;
}

std::string listed(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& r : reports) text += "\n  " + r.text;
  return text.empty() ? " nothing" : text;
}

// Lines of barriers and warp operations are always known; those of accesses need debugging information and a tool that
// reads it.
bool line_is_known(const std::string& kind) {
  static const bool have_addr2line = std::system("addr2line --version > /dev/null 2>&1") == 0;
  const std::set<std::string> of_instructions = {"illegal-address", "division-by-zero", "out-of-bounds"};
  return kind != "stack-overflow" && (!of_instructions.count(kind) || (checked() && have_addr2line));
}

void expect_report(const Outcome& out, const std::string& kind, const std::string& name, bool with_line) {
  static const std::map<std::string, std::string> places = marked_places();
  const auto known = places.find(name);
  ASSERT_TRUE(known != places.end() || !with_line) << "no line is marked";
  const std::string place = with_line ? known->second : "";
  const auto is_it = [&](const Report& r) {
    return ("|" + kind + "|").find("|" + r.kind + "|") != kind.npos &&
           r.text.starts_with(r.kind + ": kernel emulation_bugs::") &&
           std::regex_search(r.text, std::regex(place + "($|[^0-9])"));
  };
  EXPECT_TRUE(std::any_of(out.reports.begin(), out.reports.end(), is_it))
      << "expected: " << kind << " at " << place << "; reported:" << listed(out.reports);
}

class Bugs : public testing::TestWithParam<Case> {};

TEST_P(Bugs, AreFound) {
  const Case& c = GetParam();
  ASSERT_TRUE(kExpected.count(c.name));
  const Expected expected = kExpected.at(c.name);
  if (kAsan && expected.stops_asan) {
    EXPECT_DEATH(execute(c, Schedule::forward),
                 "AddressSanitizer: use-after-poison|runtime error: (index|.*misaligned|.*overflow|shift|division)");
    return;
  }
  int wrong = 0;
  for (Schedule schedule : kSchedules) {
    SCOPED_TRACE(name_of(schedule));
    const Outcome out = execute(c, schedule);
    const std::string kind = checked() ? expected.checked : expected.plain;
    wrong += !out.right;
    if (kind == "?") continue;
    if (kind.empty()) {
      EXPECT_TRUE(out.reports.empty()) << listed(out.reports);
    } else {
      const std::string mark = expected.mark.value_or(c.name);
      expect_report(out, kind, mark, !mark.empty() && line_is_known(kind));
    }
  }
  if (expected.wrong_values) {
    EXPECT_GT(wrong, 0);
  }
}

class Correct : public testing::TestWithParam<Case> {};

TEST_P(Correct, AreLeftInPeace) {
  for (Schedule schedule : kSchedules)
    for (uint64_t seed = 1; seed <= (schedule == Schedule::random ? 10 : 1); ++seed) {
      const Outcome out = execute(GetParam(), schedule, seed);
      EXPECT_TRUE(out.right) << name_of(schedule);
      EXPECT_TRUE(out.reports.empty()) << name_of(schedule) << listed(out.reports);
    }
}

std::vector<Case> all(std::span<const Case> cases) { return {cases.begin(), cases.end()}; }
std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Emulation, Bugs, testing::ValuesIn(all(emulation_bugs::bugs())), case_name);
INSTANTIATE_TEST_SUITE_P(Emulation, Correct, testing::ValuesIn(all(emulation_bugs::correct())), case_name);

TEST(Emulation, EveryExpectedBugIsPlanted) {
  std::set<std::string> planted;
  for (const Case& c : emulation_bugs::bugs()) planted.insert(c.name);
  for (const auto& [name, expected] : kExpected) EXPECT_TRUE(planted.count(name)) << name;
  EXPECT_EQ(planted.size(), kExpected.size());
}

const Case& named(std::span<const Case> cases, const std::string& name) {
  return *std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.name == name; });
}
const Case& bug(const std::string& name) { return named(emulation_bugs::bugs(), name); }

TEST(Emulation, KernelsAreListedWhetherExecutedOrNot) {
  const auto launches = [](const std::string& name, Schedule schedule) {
    const std::vector<KernelRun> all = kernels();
    const auto it = std::find_if(all.begin(), all.end(), [&](const KernelRun& k) { return k.name == name; });
    return it == all.end() ? int64_t{-1} : int64_t(it->launches[size_t(schedule)]);
  };
  const int64_t forward = launches("emulation_bugs::last_block<true>", Schedule::forward);
  ASSERT_GE(forward, 0);
  const int64_t other = launches("emulation_bugs::last_block<false>", Schedule::random);
  execute(named(emulation_bugs::correct(), "last_block"), Schedule::forward);
  EXPECT_EQ(launches("emulation_bugs::last_block<true>", Schedule::forward), forward + 1);
  EXPECT_EQ(launches("emulation_bugs::last_block<false>", Schedule::random), other);
}

TEST(Emulation, ARandomScheduleIsThatOfItsSeed) {
  const auto first = [](uint64_t seed) {
    const Outcome out = execute(bug("trap"), Schedule::random, seed);
    return out.reports.size() == 1 ? out.reports[0].text : "";
  };
  std::set<std::string> different;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    different.insert(first(seed));
    EXPECT_EQ(first(seed), first(seed));
  }
  EXPECT_GT(different.size(), 10u);  // which of the 48 threads arrives first
}

TEST(Emulation, AnyThreadMayExecuteGrids) {
  for (int i = 0; i < 3; ++i)
    std::thread([] {
      EXPECT_TRUE(execute(emulation_bugs::correct()[0], Schedule::random).right);
      EXPECT_EQ(execute(bug("stack_overflow"), Schedule::random).reports.size(), 1u);
    }).join();
  EXPECT_TRUE(execute(emulation_bugs::correct()[0], Schedule::random).right);
}

// Memory of kernels: x of ones, and y.
struct Operands {
  float *const x = live(), *const y = live();
  Operands() {
    std::fill_n(x, kSize, 1.0f);
    mark_initialised(x, kSize * sizeof(float));
  }
  ~Operands() { release(x), release(y); }
  static float* live() {
    auto* const p = static_cast<float*>(reserve(kSize * sizeof(float)));
    make_live(p);
    return p;
  }
};

TEST(Traffic, SectorsFollowFromAddresses) {
  const Operands operands;
  float *const x = operands.x, *const y = operands.y;
  struct {
    int offset, stride;
    uint64_t sectors;
  } cases[] = {{0, 0, 1}, {0, 1, 4}, {1, 1, 5}, {0, 2, 8}, {3, 8, 32}};
  for (const auto& c : cases) {
    const Traffic t = traffic_of([&] { emulation_bugs::run_counted(x + c.offset, y, c.stride, false); });
    EXPECT_EQ(t.sectors, c.sectors + 4) << "stride " << c.stride;  // and the 4 that are written
    EXPECT_EQ(t.requests, 2u);
    EXPECT_EQ(t.bytes, 2u * 128);
    EXPECT_EQ(t.threads, 32u);
    EXPECT_EQ(t.barriers, 1u);
    EXPECT_EQ(t.shuffles, 1u);
    EXPECT_EQ(t.uneven, 0u);
    EXPECT_EQ(t.unmarked, 0u);
  }
  EXPECT_EQ(traffic_of([&] { emulation_bugs::run_counted(x, y, 1, true); }).uneven, 1u);
  const Traffic unmarked = traffic_of([&] { emulation_bugs::correct()[0].run(x, y); });
  EXPECT_EQ(unmarked.requests, 0u);
  EXPECT_EQ(unmarked.unmarked > 0, checked());
}

TEST(Traffic, BanksFollowFromAddresses) {
  auto* const y = static_cast<float*>(reserve(kSize * sizeof(float)));
  make_live(y);
  std::fill_n(y, kSize, 1.0f);
  mark_initialised(y, kSize * sizeof(float));
  struct {
    int pitch;
    uint64_t conflicts;
  } cases[] = {{16, 0}, {48, 0}, {32, 1}, {64, 3}, {128, 7}, {144, 0}};
  for (const auto& c : cases) {
    const Traffic t = traffic_of([&] { emulation_bugs::run_reads_rows(y, c.pitch); });
    EXPECT_EQ(t.conflicts, 8 * c.conflicts) << "pitch " << c.pitch;  // of 4 matrices and 4 quarters of the lanes
    EXPECT_EQ(t.wavefronts, 8 + 8 * c.conflicts) << "pitch " << c.pitch;
    EXPECT_EQ(t.requests, 0u);
  }
  const Traffic product = traffic_of([&] { named(emulation_bugs::correct(), "product_tf32").run(y, y + 384); });
  EXPECT_EQ(product.products, 1u);
  EXPECT_EQ(product.multiplied, 16u * 8 * 8);
  release(y);
}

TEST(Traffic, OfAWarpgroupAndOfBoxes) {
  const Operands operands;
  float *const x = operands.x, *const y = operands.y;
  const auto of = [&](const char* name) {
    return traffic_of([&] { named(emulation_bugs::correct(), name).run(x, y); });
  };
  const Traffic product = of("wgmma_outer_bf16");  // 64 x 128 x 16
  EXPECT_EQ(product.products, 1u);
  EXPECT_EQ(product.multiplied, 64u * 128 * 16);
  EXPECT_EQ(product.wavefronts, (64u + 128) * 16 * 2 / 128);  // b once for all warps
  EXPECT_EQ(product.conflicts, 0u);
  const Traffic boxes = of("boxes_stored");  // six of four rows of 128 bytes, of which two are outside
  EXPECT_EQ(boxes.requests, 4u);
  EXPECT_EQ(boxes.bytes, 4u * 4 * 128);
  EXPECT_EQ(boxes.sectors * Traffic::kSector, boxes.bytes);
  EXPECT_EQ(boxes.wavefronts, 6u * 4);
}

}  // namespace
}  // namespace ringtape::emulation
