// Processes that come, go, die and hang at every call: what must hold for all histories of an elastic training.
#include <bit>
#include <cstdlib>
#include <map>

#include "tests/support/membership_training.h"
#include "tests/support/support.h"

namespace ringtape::test {
namespace {

std::string text_of(const Plan& plan) {
  std::string out =
      concat(plan.processes, "+", plan.newcomers, " processes, at least ", plan.min_ranks, ", at most ", plan.max_ranks,
             ", begin ", plan.begin, ", leaver ", plan.leaver, ", order ", plan.order, ", random ", plan.random_strikes,
             ", failures ", plan.failures, ", hosts ", plan.hosts, ", strikes");
  for (const Cut& c : plan.cuts) out += concat(" cut {", c.a, ", ", c.b, ", ", c.from, ", ", c.until, "}");
  for (const Strike& s : plan.strikes) out += concat(" {", s.decision, ", ", s.process, ", ", s.deadlines, "}");
  return out;
}

std::vector<Plan> plans() {
  std::vector<Plan> out;
  for (const int order : {0, 1, 3}) {
    out.push_back({.order = order});
    out.push_back({.newcomers = 2, .min_ranks = 2, .begin = 90, .order = order});
    out.push_back({.newcomers = 2, .max_ranks = 3, .begin = 20, .order = order});
    out.push_back({.leaver = order % 3, .order = order});
    out.push_back({.processes = 2, .newcomers = 1, .min_ranks = 2, .order = order});
  }
  return out;
}

constexpr int kKinds[] = {Strike::kCrash, 1, 2, Strike::kForLong};

bool full() { return std::getenv("RINGTAPE_LADDER") != nullptr; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 31;  // one of so many: the code is the same in all, and ten times as slow
#else
constexpr int kShare = 1;
#endif

// Runs plans, and counts how their processes end.
class Tries {
 public:
  // False, and a failure of the test, if an invariant is broken.
  bool hold(const Plan& plan) {
    MembershipTraining training(plan);
    const std::string result = training.check();
    EXPECT_EQ(result, "") << text_of(plan);
    decisions_ = training.decisions();
    ++histories_;
    for (const char* end : {"done", "crashed", "evicted", "told", "starved"})
      ends_[end] += last_[end] = training.count(end);
    return result.empty();
  }
  int last(const std::string& end) const { return last_.at(end); }  // how many ended so in the last history
  int decisions_of(const Plan& plan) { return hold(plan) ? decisions_ : 0; }
  void record(int at_least) const {
    testing::Test::RecordProperty("histories", histories_);
    for (const auto& [end, count] : ends_) testing::Test::RecordProperty(end, count);
    EXPECT_GE(histories_, at_least);
  }

 private:
  int histories_ = 0, decisions_ = 0;
  std::map<std::string, int> ends_, last_;
};

TEST(MembershipHistories, NothingHappens) {
  for (const Plan& plan : plans()) {
    MembershipTraining training(plan);
    EXPECT_EQ(training.check(), "") << text_of(plan);
    EXPECT_EQ(training.count("done"), plan.processes + plan.newcomers - (plan.leaver >= 0)) << text_of(plan);
  }
}

// Whoever assignments, and a spare process may, too. The first failure is in a generation that had got further.
TEST(MembershipHistories, FailWhenAStepFailsAgainAndAgain) {
  for (int order = 0; order < 300; ++order)
    for (const int failures : {2, 3, 4}) {
      const Plan plan{.newcomers = 0, .max_ranks = 2, .order = order, .failures = failures};
      MembershipTraining training(plan);
      EXPECT_EQ(training.check(), "") << text_of(plan);
      EXPECT_EQ(training.count(failures <= comm::kMaxStalls ? "done" : "failed: lost a connection"), 3)
          << text_of(plan);
    }
}

// Every process, at every call of any process, dies or hangs.
TEST(MembershipHistories, OneStrike) {
  Tries tries;
  int64_t n = 0;
  for (Plan plan : plans()) {
    const int decisions = tries.decisions_of(plan);
    for (int at = 1; at <= decisions; ++at)
      for (size_t p = 0; p < size_t(plan.processes + plan.newcomers); ++p)
        for (const int kind : kKinds) {
          if (n++ % kShare != 0) continue;
          plan.strikes = {{at, p, kind}};
          if (!tries.hold(plan)) return;
        }
  }
  tries.record(20'000 / kShare);
}

// The most hosts of which no two are cut from each other.
int most_together(size_t hosts, const std::vector<Cut>& cuts) {
  int most = 0;
  for (unsigned set = 0; set < 1u << hosts; ++set)
    if (std::ranges::none_of(cuts, [&](const Cut& c) { return set >> c.a & set >> c.b & 1; }))
      most = std::max(most, std::popcount(set));
  return most;
}

// Cuts between any hosts of two, three and four: as many go on as can, and they end the work.
TEST(MembershipHistories, CutsBetweenHosts) {
  Tries tries;
  int64_t n = 0;
  for (const size_t hosts : {2, 3, 4}) {
    std::vector<Cut> pairs;
    for (size_t b = 1; b < hosts; ++b)
      for (size_t a = 0; a < b; ++a) pairs.push_back({a, b});
    for (const int order : {0, 1, 2, 3}) {
      Plan plan{.processes = int(hosts), .newcomers = 0, .order = order, .hosts = hosts};
      const int decisions = tries.decisions_of(plan);
      for (unsigned set = 1; set < 1u << pairs.size(); ++set)
        for (int from = 1; from <= decisions; ++from) {
          if (n++ % (11 * kShare) != 0) continue;
          plan.cuts.clear();
          for (size_t i = 0; i < pairs.size(); ++i)
            if (set >> i & 1) plan.cuts.push_back(pairs[i]), plan.cuts.back().from = from;
          if (!tries.hold(plan)) return;
          const int done = tries.last("done"), evicted = tries.last("evicted");
          ASSERT_EQ(done + evicted, plan.processes) << text_of(plan);
          if (evicted == 0) continue;
          ASSERT_EQ(done, most_together(hosts, plan.cuts)) << text_of(plan);
        }
    }
  }
  tries.record(2'000 / kShare);
}

// Also cuts that end, while processes come, go, die and hang, some of them on one host.
TEST(MembershipHistories, RandomCuts) {
  Tries tries;
  const int count = (full() ? 100'000 : 5'000) / kShare;
  for (int i = 0; i < count; ++i) {
    Plan plan{.processes = 2 + i % 3,
              .newcomers = i / 3 % 3,
              .min_ranks = 1 + i / 9 % 2,
              .begin = 10 + i % 150,
              .order = i,
              .random_strikes = i / 18 % 4,
              .hosts = size_t(2 + i / 72 % 3)};
    for (int c = 0; c <= i / 216 % 3; ++c) {
      const int from = i * 37 % 200 + 40 * c;
      const size_t a = size_t(i + c) % plan.hosts, b = (a + 1 + size_t(i / 7 + c) % (plan.hosts - 1)) % plan.hosts;
      plan.cuts.push_back({a, b, from, i % 2 ? Cut().until : from + 1 + i % 90});
    }
    if (!tries.hold(plan)) return;
  }
  tries.record(count);
}

// Pairs: of all, each kPart-th.
TEST(MembershipHistories, TwoStrikes) {
  const int part = (full() ? 97 : 1999) * kShare;  // prime to all else
  Tries tries;
  int64_t n = 0;
  for (Plan plan : plans()) {
    const int decisions = tries.decisions_of(plan);
    const size_t processes = size_t(plan.processes + plan.newcomers);
    for (int first = 1; first <= decisions; ++first)
      for (int second = first; second <= decisions + 60; ++second)
        for (size_t p = 0; p < processes; ++p)
          for (size_t q = 0; q < processes; ++q)
            for (const int kind : kKinds)
              for (const int other : kKinds) {
                if (p == q || (kind != Strike::kCrash && other != Strike::kCrash) || n++ % part != 0) continue;
                plan.strikes = {{first, p, kind}, {second, q, other}};
                if (!tries.hold(plan)) return;
              }
  }
  tries.record(5'000 / kShare);
}

TEST(MembershipHistories, RandomStrikes) {
  Tries tries;
  const int count = (full() ? 100'000 : 20'000) / kShare;
  for (int i = 0; i < count; ++i) {
    const Plan plan{.processes = 2 + i % 3,
                    .newcomers = i / 3 % 4,
                    .min_ranks = 1 + i / 12 % 2,
                    .max_ranks = i / 24 % 2 ? 3 : 8,
                    .begin = 10 + i % 150,
                    .leaver = i / 48 % 4 - 1,
                    .order = i,
                    .steps = 1 + i / 192 % 5,
                    .random_strikes = i / 960 % 7,
                    .failures = i / 6720 % 3};
    if (!tries.hold(plan)) return;
  }
  tries.record(count);
}

// The invariants can fail: each of these finds a store that breaks its promises.
TEST(MembershipHistories, FindsBrokenStores) {
  const std::pair<Bug, const char*> bugs[] = {{Bug::set_once_overwrites, "one assignment per generation"},
                                              {Bug::assignments_are_lost, "one assignment per generation"},
                                              {Bug::wills_are_lost, "all end"},
                                              {Bug::ids_come_twice, "nobody has a rank twice"},
                                              {Bug::the_gone_look_alive, "the gone do nothing"},
                                              {Bug::votes_are_ahead, "members have the assigned state"},
                                              {Bug::votes_are_behind, "the furthest state is taken"},
                                              {Bug::cuts_are_missed, "only what stalls fails"},
                                              {Bug::voters_are_evicted, "only who hangs or is cut off is evicted"}};
  for (const auto& [bug, invariant] : bugs) {
    std::map<std::string, int> found;
    for (int i = 0; i < 1'000; ++i) {
      Plan plan{.order = i, .random_strikes = i % 9, .bug = bug};
      if (bug == Bug::cuts_are_missed) plan.random_strikes = 0, plan.cuts = {{.from = i % 97}};
      if (bug == Bug::wills_are_lost)
        for (const size_t p : {0, 1, 2}) plan.strikes.push_back({20 + i % 97, p});
      MembershipTraining training(plan);
      const std::string result = training.check();
      ++found[result.substr(0, result.find(':'))];
    }
    EXPECT_GT(found[invariant], 0) << testing::PrintToString(found);
  }
}

}  // namespace
}  // namespace ringtape::test
