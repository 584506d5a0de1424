#pragma once
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "comm/base/fd.h"
#include "comm/job/rendezvous.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"

// Processes that form a job, for tests.
namespace ringtape::comm::test {

using ringtape::test::Child;
using ringtape::test::message_of;
using ringtape::test::TemporaryFolder;

inline constexpr int kLong = 20;  // seconds, for events that are expected to happen
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// n processes; each runs f(rank) and sends back the text that f returns.
class Ranks {
 public:
  template <class F> Ranks(int n, F&& f) {
    for (int r = 0; r < n; ++r) {
      int ends[2];
      EXPECT_EQ(::pipe(ends), 0);
      results_.emplace_back(ends[0]);
      const Fd in(ends[1]);
      children_.emplace_back([&, r] {
        std::string text;
        try {
          text = f(r);
        } catch (const std::exception& e) {
          text = concat("threw ", e.what());
        }
        (void)!::write(in.get(), text.data(), text.size());
      });
    }
  }
  const Child& operator[](int rank) const { return children_[size_t(rank)]; }

  // The text of rank, "nothing" if it was killed, "hangs" if it takes too long.
  std::string result(int rank) {
    std::string out;
    const Deadline deadline{Seconds(kLong)};
    for (pollfd p{results_[size_t(rank)].get(), POLLIN, 0}; ::poll(&p, 1, deadline.left_ms()) > 0;) {
      char text[4096];
      const ssize_t got = ::read(p.fd, text, sizeof text);
      if (got <= 0) return out.empty() ? "nothing" : out;
      out.append(text, size_t(got));
    }
    return "hangs";
  }

 private:
  std::vector<Fd> results_;
  std::vector<Child> children_;
};

// Waits for the failure of the job.
inline std::string cause_of(const Job& job) {
  for (const Deadline deadline{Seconds(kLong)}; !job.failure->raised() && !deadline.passed();)
    std::this_thread::sleep_for(Seconds(0.001));
  return job.failure->cause();
}

// The Place that a launcher would describe for a job on one host.
inline Place place_on_host(int rank, int size) { return {"test", rank, size, rank, size, true, "test job"}; }

}  // namespace ringtape::comm::test
