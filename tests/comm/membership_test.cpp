// Processes that come and go: assignments and their text, who has a rank, and what next() throws.
#include "comm/job/membership.h"

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <span>
#include <thread>

#include "comm/store/socket.h"
#include "comm/store/tcp_store.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using test::Child;
using test::message_of;
using End = Membership::End;
using Memberships = std::vector<std::unique_ptr<Membership>>;

Memberships memberships(const std::shared_ptr<Store>& store, const std::vector<std::string>& hosts,
                        const Membership::Options& options) {
  Memberships out;
  for (size_t i = 0; i < hosts.size(); ++i)
    out.push_back(std::make_unique<Membership>(store, options, hosts[i], concat("process ", i + 1)));
  return out;
}

void at_once(const std::vector<std::function<void()>>& all) {
  std::vector<std::thread> threads;
  for (const auto& f : all) threads.emplace_back(f);
  for (std::thread& t : threads) t.join();
}

// Each membership, by itself, goes on to the next generation.
void all_next(const Memberships& all, const Progress& progress = {}, End end = End::none,
              const std::string& cause = "") {
  std::vector<std::function<void()>> calls;
  for (const auto& membership : all) calls.push_back([&] { EXPECT_NO_THROW(membership->next(progress, end, cause)); });
  at_once(calls);
}

std::vector<int64_t> ids(const Assignment& assignment) {
  std::vector<int64_t> out;
  for (const Member& m : assignment.members) out.push_back(m.id);
  return out;
}

const Assignment kDeal{.number = 7,
                       .members = {{3, {12, 1}, "a", "process 3"}, {1, {-1, 0}, "", ""}},
                       .others = {2, 9},
                       .last = 9,
                       .source = 0,
                       .stalls = 2,
                       .cause = "rank 1 (pid 7) died"};

TEST(Assignment, ReadsWhatItWrote) {
  for (Assignment assignment : {kDeal, Assignment{.number = 1, .members = {{1, {}, "h", "s"}}, .last = 1}}) {
    const Assignment read = Assignment::parse(assignment.text());
    EXPECT_EQ(read.text(), assignment.text());
    EXPECT_EQ(ids(read), ids(assignment));
    EXPECT_EQ(read.others, assignment.others);
    EXPECT_EQ(read.cause, assignment.cause);
    EXPECT_EQ(read.members.back().self, assignment.members.back().self);
    EXPECT_EQ(read.members.front().progress.step, assignment.members.front().progress.step);
    EXPECT_EQ(read.source, assignment.source);
  }
  Assignment assignment = kDeal;
  assignment.cause = "two\nlines\tof it";
  EXPECT_EQ(Assignment::parse(assignment.text()).cause, "two lines of it");
}

TEST(Assignment, RefusesDamagedText) {
  const std::string text = kDeal.text();
  const size_t members = text.find("\n3\t");
  for (size_t n = 0; n < text.size(); ++n) try {
      Assignment::parse(std::string_view(text).substr(0, n));
      EXPECT_GT(n, members) << n;
    } catch (const CommError& e) {
      EXPECT_STREQ(e.what(), "the store has a damaged record of the job");
    }
  for (const char* bad : {"", "\n\n", "1\t1\t0\t0\t\n\n1\tx\t0\th\ts", "1\t1\t1\t0\t\n\n1\t0\t0\th\ts",
                          "1\t1\t-2\t0\t\n\n1\t0\t0\th\ts", "1\t1\t4294967296\t0\t\n\n1\t0\t0\th\ts",
                          "99999999999999999999\t1\t0\t0\t\n\n1\t0\t0\th\ts", "1\t1\t0\t0\t\n2\t\t\n1\t0\t0\th\ts"})
    EXPECT_THROW(Assignment::parse(bad), CommError) << bad;
}

// What nobody listens at refuses, which is an answer; where more wait to be accepted than may, what comes is dropped.
TEST(Contact, KnowsWhatGivesNoAnswer) {
  const auto address = [](const Fd& listener) { return concat("127.0.0.1 ", port_of(listener)); };
  const std::string refuses = address(listen_on("127.0.0.1", 0));
  const Fd open = listen_on("127.0.0.1", 0), full = listen_on("127.0.0.1", 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  std::vector<Fd> waiting;
  EXPECT_THROW(
      while (waiting.size() < 100) waiting.push_back(connect_to("127.0.0.1", port_of(full), Deadline(Seconds(0.5)))),
      CommError);
  const auto contact = tcp_contact(memory_store());
  EXPECT_EQ(contact->silent({refuses, address(full), address(open)}, Seconds(0.5)),
            std::vector<std::string>{address(full)});
  EXPECT_EQ(contact->silent({refuses, address(open)}, Seconds(60)), std::vector<std::string>());
}

TEST(Membership, MakesNamesOneLine) {
  const auto store = memory_store();
  Membership membership(store, {}, "a\thost", "a\nprocess of many words");
  const Assignment assignment = membership.next({4, 2}, End::none);
  ASSERT_EQ(assignment.members.size(), 1u);
  EXPECT_EQ(assignment.members[0].host, "a host");
  EXPECT_EQ(assignment.members[0].self, "a process of many words");
  EXPECT_EQ(assignment.members[0].progress.step, 4);
  EXPECT_EQ(assignment.members[0].progress.epochs, 2);
}

TEST(Membership, GroupsRanksByHost) {
  const auto island = [](const std::vector<std::string>& hosts, const std::vector<int64_t>& order) {
    const Memberships all = memberships(memory_store(), hosts, {.ranks = int(hosts.size())});
    all_next(all);
    std::vector<int> islands(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(ids(all[i]->assignment()), order);
      EXPECT_EQ(order[size_t(all[i]->rank())], int64_t(i) + 1);
      const Job job = all[i]->open(0, 1);
      EXPECT_EQ(job.size, int(hosts.size()));
      EXPECT_EQ(job.rank, all[i]->rank());
      islands[i] = job.island;
      EXPECT_EQ(islands[i], islands[0]);
    }
    return islands[0];
  };
  EXPECT_EQ(island({"a", "b", "a", "b"}, {1, 3, 2, 4}), 2);
  EXPECT_EQ(island({"a", "a", "b"}, {1, 2, 3}), 1);
  EXPECT_EQ(island({"b", "a", "b"}, {1, 3, 2}), 1);
  EXPECT_EQ(island({"a", "b"}, {1, 2}), 1);
  EXPECT_EQ(island({"a", "a"}, {1, 2}), 2);
}

TEST(Membership, TakesTheStateThatIsFurthest) {
  const auto source = [](const std::vector<Progress>& progresses) {
    const Memberships all = memberships(memory_store(), std::vector<std::string>(progresses.size(), "a"),
                                        {.ranks = int(progresses.size())});
    std::vector<std::function<void()>> calls;
    for (size_t i = 0; i < all.size(); ++i) calls.push_back([&, i] { all[i]->next(progresses[i], End::none); });
    at_once(calls);
    return all[0]->assignment().source;
  };
  EXPECT_EQ(source({{-1, 0}, {-1, 0}}), -1);
  EXPECT_EQ(source({{-1, 0}, {0, 0}}), 1);
  EXPECT_EQ(source({{7, 1}, {8, 1}, {8, 1}}), 1);
  EXPECT_EQ(source({{8, 2}, {8, 1}, {7, 0}}), 1);  // the end of its epoch is not done
}

TEST(Membership, AsksForAChangeWhereItCanJoin) {
  for (const bool full : {false, true}) {
    const auto store = memory_store();
    const Memberships members = memberships(store, {"a"}, {.max_ranks = full ? 1 : 2});
    all_next(members);
    const Job job = members[0]->open(0, 1);
    Membership second(store, {.max_ranks = full ? 1 : 2}, "a", "process 2");
    std::thread joins([&] {
      if (full) EXPECT_THROW(second.next({}, End::none), JobDone);
      else EXPECT_EQ(ids(second.next({}, End::none)), (std::vector<int64_t>{1, 2}));
    });
    store->wait("membership/vote/2/2", Deadline(Seconds(60)));
    if (full) {
      EXPECT_FALSE(job.store->get(kChangeKey));
      members[0]->finish();
    } else {
      EXPECT_EQ(job.store->wait(kChangeKey, Deadline(Seconds(60))), "process 2 joins");
      while (!members[0]->change_is_due()) std::this_thread::yield();
      EXPECT_EQ(members[0]->next({3, 0}, End::change).source, 0);
      EXPECT_FALSE(members[0]->change_is_due());
    }
    joins.join();
  }
}

TEST(Membership, SparesTakeThePlaceOfWhoGoes) {
  const auto store = memory_store();
  Memberships all = memberships(store, {"a", "b", "b"}, {.ranks = 3, .max_ranks = 2});
  std::thread spare([&] { EXPECT_EQ(ids(all[2]->next({}, End::none)), (std::vector<int64_t>{2, 3})); });
  store->wait("membership/vote/1/3", Deadline(Seconds(60)));
  at_once({[&] { all[0]->next({0, 0}, End::none); }, [&] { all[1]->next({0, 0}, End::none); }});
  EXPECT_EQ(ids(all[1]->assignment()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(all[1]->assignment().others, std::vector<int64_t>{3});
  store->wait("membership/vote/2/3", Deadline(Seconds(60)));
  all[0].reset();
  EXPECT_EQ(all[1]->next({1, 0}, End::failure, "lost").cause, "process 1 left the job");
  spare.join();
}

TEST(Membership, StarvesWithTooFew) {
  const Membership::Options options{.ranks = 3, .min_ranks = 2, .wait_for_ranks = Seconds(0.1)};
  const Memberships one = memberships(memory_store(), {"a"}, options);
  EXPECT_EQ(message_of<Starved>([&] { one[0]->next({}, End::none); }),
            "1 rank is left of at least 2, and no others have come for 0.1 s");
  Memberships two = memberships(memory_store(), {"a", "a"}, options);  // fewer than wanted, but enough
  all_next(two);
  EXPECT_EQ(two[0]->assignment().members.size(), 2u);
  two[1].reset();
  EXPECT_EQ(ids(two[0]->next({0, 0}, End::failure, "lost")), std::vector<int64_t>{1});
  EXPECT_TRUE(two[0]->is_last());
}

TEST(Membership, EvictsWhoDoesNotAnswer) {
  for (const End end : {End::change, End::failure}) {
    const Memberships all = memberships(memory_store(), {"a", "a"}, {.ranks = 2, .patience = Seconds(0.1)});
    all_next(all, {5, 0});
    const Assignment assignment = all[0]->next({6, 0}, end, "a timeout");
    EXPECT_EQ(ids(assignment), std::vector<int64_t>{1});
    EXPECT_EQ(assignment.cause, "process 2 did not answer: a timeout");
    const std::string why = "the other ranks have gone on without this process: process 2 did not answer: a timeout";
    EXPECT_EQ(message_of<Evicted>([&] { all[1]->check(); }), why);
    EXPECT_THROW(all[1]->finish(), Evicted);
    EXPECT_EQ(message_of<Evicted>([&] { all[1]->next({5, 0}, end, "late"); }), why);
    EXPECT_THROW(all[1]->finish(), Evicted);
    EXPECT_NO_THROW(all[0]->finish());
  }
}

// A store that calls `before` when a process is about to wait.
class WatchedStore : public Store {
 public:
  explicit WatchedStore(std::function<void(Store&, Seconds left)> before) : before_(std::move(before)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return store_->set_once(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return store_->get(key); }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    before_(*store_, deadline.left());
    return store_->wait_any(keys, deadline);
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  void erase(const std::string& key) override { store_->erase(key); }

 private:
  const std::shared_ptr<Store> store_ = memory_store();
  const std::function<void(Store&, Seconds)> before_;
};

// The end of a process may be known later than the failure that it causes: those that work on are no reason for it.
TEST(Membership, WaitsForTheOthersOnceItKnowsWhoHasGone) {
  std::vector<bool> prompt;  // of its waits
  const auto store = std::make_shared<WatchedStore>([&](Store& s, Seconds left) {
    if (!s.get("membership/vote/2/3")) return;
    prompt.push_back(left < Seconds(100));
    if (prompt.size() == 1) return s.set("membership/gone/2", "process 2 died");
    s.set("membership/vote/2/1", "6\t0\t0\ta\tprocess 1\t1\tlost it, too");
    s.set("membership/here/2/1", "1");
  });
  const Memberships all = memberships(store, {"a", "a", "a"}, {.ranks = 3});
  all_next(all, {5, 0});
  const Assignment assignment = all[2]->next({5, 0}, End::timeout, "lost the connection");
  EXPECT_EQ(ids(assignment), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(assignment.cause, "process 2 died");
  ASSERT_GE(prompt.size(), 2u);
  EXPECT_TRUE(prompt[0]);
  EXPECT_FALSE(prompt[1]);
}

TEST(Membership, FailsWhenTheSameStepFailsAgainAndAgain) {
  for (const int64_t step : {-1, 0, 9}) {
    const auto store = memory_store();
    Membership membership(store, {.max_ranks = 1}, "a", "process 1");
    membership.next({step, 0}, End::none);
    EXPECT_EQ(membership.next({step, 0}, End::failure, "a NaN").stalls, 1);
    EXPECT_EQ(membership.next({step, 0}, End::change).stalls, 0);
    EXPECT_EQ(membership.next({step, 0}, End::failure, "a NaN").stalls, 1);
    EXPECT_EQ(membership.next({step + 1, 0}, End::failure, "a NaN").stalls, 0);
    for (int i = 1; i < kMaxStalls; ++i) {
      EXPECT_EQ(membership.next({step + 1, 0}, End::failure, "a NaN").stalls, i);
      EXPECT_EQ(membership.assignment().cause, "a NaN");
    }
    EXPECT_EQ(message_of<JobFailed>([&] { membership.next({step + 1, 0}, End::failure, "a NaN"); }), "a NaN");
    Membership other(store, {}, "a", "process 2");
    EXPECT_EQ(message_of<JobFailed>([&] { other.next({}, End::none); }), "a NaN");
  }
}

// Whoever makes the assignment: it says what the members say.
TEST(Membership, NewcomersKeepCountAndCause) {
  const auto store = memory_store();
  const Memberships all = memberships(store, {"a", "a"}, {.ranks = 2});
  all_next(all, {5, 0});
  store->set("membership/vote/2/1", "5\t0\t0\ta\tprocess 1\t1\ta NaN");
  store->set("membership/vote/2/2", "5\t0\t0\ta\tprocess 2\t1\tanother");
  Membership third(store, {}, "a", "process 3");
  std::thread assignments([&] { EXPECT_THROW(third.next({}, End::none), JobDone); });
  const Assignment assignment = Assignment::parse(store->wait("membership/assignment/2", Deadline(Seconds(60))));
  EXPECT_EQ(assignment.stalls, 1);
  EXPECT_EQ(assignment.cause, "a NaN");
  EXPECT_EQ(assignment.members.size(), 3u);
  store->set(kDoneKey, "1");
  store->set("membership/gone/1", "process 1 died");
  assignments.join();
}

TEST(Membership, EndsForAll) {
  const auto store = memory_store();
  const Memberships all = memberships(store, {"a", "a"}, {.ranks = 2});
  all_next(all, {5, 0});
  const Job job = all[1]->open(0, 1);
  at_once({[&] { all[0]->finish(); }, [&] { EXPECT_NO_THROW(all[1]->wait_until_done()); }});
  EXPECT_THROW(all[1]->next({5, 0}, End::failure, "late"), JobDone);
  Membership newcomer(store, {}, "a", "process 3");
  EXPECT_THROW(newcomer.next({}, End::none), JobDone);
}

TEST(Membership, FailsForAll) {
  const auto store = memory_store();
  const Memberships all = memberships(store, {"a", "a"}, {.ranks = 2});
  all_next(all, {5, 0});
  const Job first = all[0]->open(0, 1), second = all[1]->open(0, 1);
  all[0]->fail("no such folder");
  EXPECT_EQ(message_of<CommError>([&] { all[1]->wait_until_done(); }), "no such folder");
  EXPECT_EQ(message_of<JobFailed>([&] { all[1]->next({5, 0}, End::failure, "lost"); }), "no such folder");
}

// A process that is killed while it works: the others learn it, and go on.
TEST(Membership, GoesOnWithoutWhoDied) {
  const std::string token = "0123456789abcdef";
  const Fd listening = listen_on("127.0.0.1", 0);  // before the threads start: a fork would not have them
  const StoreAddress address{"127.0.0.1", port_of(listening), token};
  const Membership::Options options{.ranks = 3};
  const auto work = [&](const std::string& self, const std::function<void(Membership&)>& then) {
    Membership membership(tcp_store(address, Deadline(Seconds(60))), options, "a", self);
    membership.next({}, End::none);
    then(membership);
  };
  Child dies([&] {
    work("process 0", [&](Membership& membership) {
      const Job job = membership.open(0, 1);
      job.store->add("works", 1);
      ::pause();
    });
  });
  const StoreServer server({.token = token, .listening = ::dup(listening.get())});
  const auto goes_on = [&](const std::string& self) {
    work(self, [&](Membership& membership) {
      std::string cause;
      {
        const Job job = membership.open(0, 1);
        EXPECT_EQ(membership.assignment().members.size(), 3u);
        job.store->add("works", 1);
        while (job.store->get("works") != "3") std::this_thread::yield();
        dies.kill(SIGKILL);
        cause = job.store->wait(kFailureKey, Deadline(Seconds(60)));
      }
      const Assignment assignment = membership.next({0, 0}, End::failure, cause);
      EXPECT_EQ(assignment.members.size(), 2u);
      EXPECT_EQ(assignment.cause, "process 0 died");
      const Job job = membership.open(0, 1);
      job.store->add("met", 1);
      while (job.store->get("met") != "2") std::this_thread::yield();
    });
  };
  at_once({[&] { goes_on("process 1"); }, [&] { goes_on("process 2"); }});
}

}  // namespace
}  // namespace ringtape::comm
