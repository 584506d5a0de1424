#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "comm/transport.h"
#include "tests/support/processes.h"

// Ranks that are processes, for tests: forked, with a store in a folder.
namespace ringtape::test {

struct Ended {
  int status = 0;     // of waitpid
  std::string error;  // what the rank threw
};

// Forks n ranks that call f(context), and waits for all; `meanwhile`, if given, runs in the parent with their process
// ids. A rank ends with 0, with 1 if a check failed in it, with 2 if it threw.
inline std::vector<Ended> run_processes(int n, comm::Seconds timeout,
                                        const std::function<void(const comm::Context&)>& f,
                                        const std::function<void(const std::vector<pid_t>&)>& meanwhile = nullptr) {
  const TemporaryFolder folder;
  const auto store = comm::file_store(folder.path());  // so that it is not removed before all ranks have come
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int r = 0; r < n; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int code = 0;
      try {
        f({r, n, comm::file_store(folder.path()), std::make_shared<comm::Failure>(), timeout});
      } catch (const std::exception& e) {
        std::ofstream(concat(folder.path(), "/error.", r)) << e.what();
        code = 2;
      }
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : code);
    }
    pids.push_back(pid);
  }
  if (meanwhile) meanwhile(pids);
  std::vector<Ended> out(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(::waitpid(pids[size_t(r)], &out[size_t(r)].status, 0), pids[size_t(r)]);
    std::getline(std::ifstream(concat(folder.path(), "/error.", r)), out[size_t(r)].error, '\0');
  }
  return out;
}

// The same; all must end with 0.
inline void on_processes(int n, const std::function<void(const comm::Context&)>& f) {
  const std::vector<Ended> ends = run_processes(n, comm::Seconds(60), f);
  for (size_t r = 0; r < ends.size(); ++r) EXPECT_EQ(ends[r].status, 0) << "rank " << r << ": " << ends[r].error;
}

}  // namespace ringtape::test
