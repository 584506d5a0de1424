// The reports of the ranks of a job when one of them waits too long, or on request.
#include <fstream>
#include <thread>

#include "comm/base/host_name.h"
#include "comm/health/activity.h"
#include "comm/health/report.h"
#include "comm/transport/transports.h"
#include "tests/support/job_ranks.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using namespace test;

// Rank 0 waits for rank 1 in a collective; rank 1 is busy elsewhere, rank 2 is stopped, rank 3 has finished.
TEST(Report, OfADeadlineSaysWhatEveryRankIsAt) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  Ranks ranks(4, [&](int r) {
    std::optional<Job> job = join(place_on_host(r, 4), {.folder = folder}, Seconds(kLong));
    const auto transport = shm_transport(job->context(Seconds(2)));
    Activity::process().set_step(1580 - r);
    transport->begin(
        {.kind = Collective::all_reduce, .dtype = DType::f32, .count = 1 << 20, .sequence = uint64_t(12 - r)},
        Deadline(Seconds(2)));
    if (r > 0) transport->end();
    job->store->set(concat("is there ", r), "1");
    if (r == 3) return job.reset(), std::string("left");
    if (r == 2) ::raise(SIGSTOP);
    if (r == 1) return cause_of(*job);
    for (int i = 1; i < 4; ++i) job->store->wait(concat("is there ", i), Deadline(Seconds(kLong)));
    job->store->wait("hub/left/3", Deadline(Seconds(kLong)));
    char byte;
    return message_of<CommError>([&] { transport->exchange({recv_from(1, &byte, 1)}); });
  });
  const std::string report = ranks.result(1);
  ranks[2].kill(SIGKILL);  // rank 0, which hosts the store, waits for it
  EXPECT_EQ(ranks.result(0), report);
  EXPECT_TRUE(
      report.starts_with("rank 0 waited 2 s for rank 1 in all_reduce #12 (sum, f32, 1,048,576 elements) over shm\n"
                         "the ranks at that moment:\nrank  host"))
      << report;
  const auto expect_row = [&](int rank, std::initializer_list<std::string> parts) {
    const size_t at = report.find(concat('\n', rank, "     ")) + 1;
    const std::string row = report.substr(at, report.find('\n', at) - at);
    for (const std::string& part : parts) EXPECT_TRUE(has(row, part)) << part << " in: " << row;
  };
  expect_row(0, {concat(ranks[0].pid()), "1580", "all_reduce #12 (sum, f32", "4,194,304  rank 1"});
  expect_row(1, {host_name(), concat(ranks[1].pid()), "1579", "idle after all_reduce #11"});
  expect_row(2, {"no answer within 1 s"});
  expect_row(3, {"has left the job"});
}

TEST(Report, OfRanksThatAreThreads) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < 3; ++r) transports.push_back(threads_transport({r, 3, store, failure, Seconds(0.1)}));
  std::vector<std::string> messages(3);
  const auto run = [&](int r, Seconds timeout) {
    transports[size_t(r)]->begin({.kind = Collective::barrier, .sequence = 5}, Deadline(timeout));
    char byte;
    messages[size_t(r)] =
        message_of<CommError>([&] { transports[size_t(r)]->exchange({recv_from((r + 1) % 3, &byte, 1)}); });
  };
  std::thread first(run, 0, Seconds(kLong)), second(run, 1, Seconds(kLong));
  for (const int r : {0, 1})
    while (transports[size_t(r)]->waiting_on() != r + 1) std::this_thread::yield();
  run(2, Seconds(0.1));
  first.join();
  second.join();
  for (const std::string& m : messages) EXPECT_EQ(m, failure->cause());
  EXPECT_TRUE(has(messages[0], "rank 2 waited 0.1 s for rank 0 in barrier #5")) << messages[0];
  for (int r = 0; r < 3; ++r)
    EXPECT_TRUE(has(messages[0], concat("barrier #5  0      rank ", (r + 1) % 3))) << messages[0];
}

TEST(Activity, KeepsTheLast256AndWritesThemOnSigquit) {
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/dump";
  Child child([&] {
    const auto transport = threads_transport({0, 1, memory_store(), std::make_shared<Failure>(), Seconds(5)});
    for (uint64_t i = 1; i <= 300; ++i) {
      transport->begin({.kind = Collective::broadcast, .dtype = DType::f64, .count = 2, .sequence = i},
                       Deadline(Seconds(5)));
      if (i < 300) transport->end();
    }
    dump_activity_on_sigquit(path);
    ::raise(SIGQUIT);
    ::pause();
  });
  std::string text;
  for (const Deadline deadline{Seconds(kLong)}; !has(text, "#300") && !deadline.passed();) {
    std::ifstream in(path);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_FALSE(has(text, "#44 "));
  EXPECT_TRUE(has(text, "rank 0 of 1  broadcast #45 (f64, 2 elements, root 0) over threads, took 0.000 s")) << text;
  EXPECT_TRUE(has(text, "#300 (f64, 2 elements, root 0) over threads, not ended after ")) << text;
}

}  // namespace
}  // namespace ringtape::comm
