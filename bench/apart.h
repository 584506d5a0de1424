#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace ringtape::bench {

// Runs f() in a separate process, since the libraries' thread pools would compete for the cores.
inline double apart(const std::function<double()>& f) {
  int ends[2];
  double result = 0;
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    result = f();
    _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  if (read(ends[0], &result, sizeof result) != sizeof result) result = 0;
  close(ends[0]);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  return result;
}

inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

}  // namespace ringtape::bench
