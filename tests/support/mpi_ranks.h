#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "comm/transport/transports.h"
#include "tests/support/processes.h"

// Ranks that mpirun starts, for tests: a test SUITE.DISABLED_Rank is what each of them runs.
namespace ringtape::test {

inline bool has_mpirun() { return std::system("mpirun --version >/dev/null 2>&1") == 0; }

// Starts this executable's test `suite`.DISABLED_Rank with n ranks; fails unless all of them report success.
inline void run_under_mpirun(int n, const std::string& suite) {
  const TemporaryFolder folder;
  const auto store = comm::file_store(folder.path());
  ::setenv("RINGTAPE_TEST_FOLDER", folder.path().c_str(), 1);
  const std::string command =
      concat("timeout 120 mpirun -n ", n, " --allow-run-as-root --oversubscribe -x RINGTAPE_TEST_FOLDER ",
             std::filesystem::read_symlink("/proc/self/exe").string(),
             " --gtest_also_run_disabled_tests --gtest_filter=", suite, ".DISABLED_Rank 2>&1");
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string said;
  for (char line[512]; std::fgets(line, sizeof line, pipe);) said += line;
  ::pclose(pipe);
  for (int r = 0; r < n; ++r) EXPECT_EQ(store->get(concat("ended/", r)), "well") << n << " ranks: " << said;
}

// In such a rank: calls f(context), reports the result and waits for the others, because mpirun ends all ranks when the
// first one ends.
template <class F> void as_mpi_rank(comm::Seconds timeout, F&& f) {
  const char* const folder = std::getenv("RINGTAPE_TEST_FOLDER");
  ASSERT_NE(folder, nullptr) << "started by run_under_mpirun() alone";
  const auto store = comm::file_store(folder);
  const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")),
            size = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  f(comm::Context{rank, size, store, std::make_shared<comm::Failure>(), timeout});
  store->set(concat("ended/", rank), testing::Test::HasFailure() ? "bad" : "well");
  for (int r = 0; r < size; ++r) store->wait(concat("ended/", r), comm::Deadline(timeout));
}

}  // namespace ringtape::test
