// The emulation itself: the errors that each mode finds in wrong kernels, and that it finds none in correct ones.
#include "emulation/emulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <thread>

#include "emulation/bugs.h"
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

#if defined(__aarch64__)
constexpr bool kArm = true;  // which divides by zero without a signal
#else
constexpr bool kArm = false;
#endif

// For each planted bug: the report of a checked executable ("race|in-flight": either, as the schedule has it) and of
// any executable ("": none, "?": unspecified); whether results are wrong under at least one schedule; whether a build
// with AddressSanitizer and UndefinedBehaviorSanitizer stops at it; the comment at the place, by default the bug's name
// ("": the schedule decides which place).
struct Expected {
  const char* checked;
  const char* plain = "";
  bool wrong_values = false;
  bool stops_asan = false;
  std::optional<std::string> mark = {};
};
const std::map<std::string, Expected> kExpected = {
    {"missing_barrier", {"race", "", true}},
    {"tile_reuse", {"race", "", true}},
    {"missing_syncwarp", {"race", "", true}},
    {"lockstep_tree", {"race", "", true}},
    {"shuffle_as_fence", {"race"}},
    {"plain_sum_of_block", {"race"}},
    {"plain_sum_of_blocks", {"race"}},
    {"same_value", {"race"}},
    {"neighbour_in_place", {"race"}},
    {"atomic_without_barrier", {"race", "", true}},
    {"sum_by_atomics", {"order-dependent", "order-dependent", false, false, ""}},
    {"missing_threadfence", {"race"}},
    {"early_return", {"exited-at-barrier", "exited-at-barrier"}},
    {"two_barriers", {"divergent-barrier", "divergent-barrier"}},
    {"barrier_in_loop", {"divergent-barrier", "divergent-barrier"}},
    {"half_a_warp_at_barrier", {"deadlock", "deadlock"}},
    {"divergent_shuffle", {"warp-mismatch", "warp-mismatch"}},
    {"absent_lane", {"shuffle", "shuffle"}},
    {"not_in_mask", {"warp-mask", "warp-mask"}},
    {"write_past_end", {"out-of-bounds", "out-of-bounds", false, true}},
    {"write_before_begin", {"out-of-bounds", "out-of-bounds", false, true}},
    {"read_past_end", {"out-of-bounds", "", false, true}},
    {"shared_overrun", {"out-of-bounds", "out-of-bounds", false, true}},
    {"far_shared_overrun", {"out-of-bounds", "", false, true}},
    {"row_overrun", {"out-of-bounds", "", false, true}},
    {"dynamic_overrun", {"out-of-bounds", "out-of-bounds", false, true}},
    {"use_after_free", {"use-after-free", "", false, true}},
    {"use_before_allocation", {"use-before-allocation", "", false, true}},
    {"host_pointer", {"host-pointer"}},
    {"wild_pointer", {"host-pointer", "illegal-address"}},
    {"other_local", {"foreign-local"}},
    {"uninitialised_shared", {"uninitialised", "", true}},
    {"uninitialised_sum", {"uninitialised", "", true}},
    {"misaligned", {"misaligned", "?", false, true}},
    {"ldg_of_written", {"cached-read"}},
    {"unwritten_tail", {"", "", true}},
    {"stack_overflow", {"stack-overflow", "stack-overflow"}},
    {"trap", {"trap", "trap"}},
    {"assertion", {"trap", "trap"}},
    {"division_by_zero", {"division-by-zero", kArm ? "" : "division-by-zero", false, true}},
    {"integer_overflow", {"integer-overflow", "", false, true}},
    {"wide_shift", {"shift", "", false, true}},
    {"large_shared", {"trap", "trap"}},
    {"fragments_swapped", {"", "", true}},
    {"fragment_not_transposed", {"", "", true}},
    {"matrix_without_syncwarp", {"race", "", false, false, "matrix_product"}},
    {"matrix_misaligned", {"misaligned", "misaligned", false, false, "matrix_product"}},
    {"matrix_not_shared", {"matrix-address", "matrix-address", false, false, "matrix_product"}},
    {"matrix_divergent", {"warp-mismatch", "warp-mismatch", false, false, "matrix_product"}},
    {"matrix_returned_lane", {"warp-mask", "warp-mask", false, false, "matrix_product"}},
    {"copy_not_awaited", {"in-flight", "", true, false, "copy_read"}},
    {"copy_one_group_early", {"in-flight", "", true, false, "copy_read"}},
    {"copy_not_committed", {"in-flight", "", true, false, "copy_read"}},
    {"copy_without_barrier", {"race", "", true, false, "copy_read"}},
    {"copy_overwrites", {"race|in-flight", "", false, false, ""}},
    {"copy_past_end", {"out-of-bounds", "out-of-bounds", false, true, "copy_begins"}},
    {"copy_misaligned", {"misaligned", "misaligned", false, false, "copy_begins"}},
    {"copy_target_touched", {"in-flight", "", true, false, "copy_touched"}},
    {"hand_without_full", {"race", "deadlock|divergent-barrier", true, false, ""}},
    {"hand_empty_too_early", {"race", "", false, false, ""}},
    {"hand_other_count", {"named-barrier", "named-barrier", false, false, ""}},
    {"hand_too_many", {"deadlock", "deadlock"}},
    {"hand_half_a_warp", {"divergent-barrier", "divergent-barrier", false, false, ""}},
    {"hand_number", {"named-barrier", "named-barrier"}},
    {"phase_not_initialised", {"mbarrier", "mbarrier", false, false, ""}},
    {"phase_initialised_twice", {"mbarrier", "mbarrier", false, false, "phase_twice"}},
    {"phase_init_unordered", {"race"}},
    {"phase_wrong_parity", {"race|in-flight|uninitialised", "deadlock", true, false, ""}},
    {"phase_count_too_large", {"deadlock", "deadlock", false, false, "phase_waits"}},
    {"phase_not_awaited", {"race|in-flight|uninitialised", "deadlock", true, false, ""}},
    {"phase_arrives_before_copy", {"in-flight", "", true, false, "phase_consumes"}},
    {"wgmma_no_full", {"in-flight", "?", false, false, "wgmma_product"}},
    {"wgmma_full_of_one_lane", {"in-flight", "?", false, false, "wgmma_product"}},
    {"wgmma_wrong_parity", {"in-flight|deadlock|phase", "?", false, false, ""}},
    {"wgmma_phase_skipped", {"in-flight", "?", false, false, "wgmma_load"}},
    {"wgmma_no_empty", {"in-flight", "?", false, false, "wgmma_load"}},
    {"wgmma_no_fence_async", {"unfenced", "?", false, false, "wgmma_product"}},
    {"wgmma_late_fence_async", {"unfenced", "?", false, false, "wgmma_product"}},
    {"wgmma_no_init_fence", {"mbarrier", "?", false, false, "wgmma_load"}},
    {"wgmma_few_bytes", {"mbarrier-bytes", "?", false, false, "wgmma_full"}},
    {"wgmma_many_bytes", {"mbarrier-bytes", "?", false, false, "wgmma_full"}},
    {"wgmma_bytes_not_expected", {"mbarrier-bytes|in-flight", "?", false, false, ""}},
    {"wgmma_no_fence", {"wgmma-fence", "?", false, false, "wgmma_product"}},
    {"wgmma_no_wait", {"source-in-use", "?", false, false, ""}},
    {"wgmma_wait_one_early", {"source-in-use", "?", false, false, ""}},
    {"wgmma_early_empty", {"in-flight|source-in-use|race", "?", false, false, ""}},
    {"wgmma_sums_written", {"sums-touched", "?", false, false, "wgmma_wait"}},
    {"wgmma_not_committed", {"source-in-use", "?", false, false, ""}},
    {"wgmma_inside_pattern", {"descriptor", "?", false, false, "wgmma_product"}},
    {"wgmma_not_swizzled", {"descriptor", "?", false, false, "wgmma_product"}},
    {"wgmma_wrong_stride", {"", "", true}},
    {"wgmma_other_layout", {"", "", true}},
    {"wgmma_warps_differ", {"warpgroup", "?", false, false, "wgmma_product"}},
    {"wgmma_one_warp_less", {"warpgroup", "?", false, false, "wgmma_product"}},
    {"wgmma_divergent", {"warp-mismatch", "?", false, false, "wgmma_product"}},
    {"box_misaligned", {"bulk-copy", "?", false, false, "wgmma_load"}},
    {"box_axes", {"bulk-copy", "?", false, false, ""}},
    {"box_not_shared", {"bulk-copy", "?", false, false, "wgmma_load"}},
    {"box_touched", {"in-flight", "?", false, false, "wgmma_touched"}},
    {"box_twice", {"in-flight", "?", false, false, ""}},
    {"box_outlives", {"copy-outlives-block", "?", false, false, ""}},
    {"map_unmade", {"bulk-copy", "?", false, false, "wgmma_load"}},
    {"store_no_fence_async", {"unfenced", "?", false, false, "store_begins"}},
    {"store_fence_of_storer", {"unfenced", "?", false, false, "store_begins"}},
    {"store_no_barrier", {"race", "?", false, false, ""}},
    {"store_no_wait", {"source-in-use", "?", false, false, ""}},
    {"store_early_reuse", {"race|source-in-use", "?"}},
    {"store_not_committed", {"source-in-use", "?", false, false, ""}},
    {"store_misaligned", {"bulk-copy", "?", false, false, "store_begins"}},
    {"registers_too_many", {"registers", "?", false, false, ""}},
    {"registers_one_warp", {"registers", "?"}},
    {"turn_skipped", {"phase", "?", false, false, "turn_waits"}},
    {"turn_alone", {"phase", "?", false, false, "turn_waits"}},
    {"turn_too_many", {"mbarrier", "?"}},
};

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

TEST(Traffic, SectorsFollowFromAddresses) {
  auto* const x = static_cast<float*>(reserve(kSize * sizeof(float)));
  auto* const y = static_cast<float*>(reserve(kSize * sizeof(float)));
  make_live(x);
  make_live(y);
  std::fill_n(x, kSize, 1.0f);
  mark_initialised(x, kSize * sizeof(float));
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
  release(x);
  release(y);
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
  release(y);
}

}  // namespace
}  // namespace ringtape::emulation
