// Seconds of a search for the nearest rows (normally distributed f32), and the peak memory of the process: JSON on
// standard output.
//   knn_bench [queries] [bank] [depth] [k]        RINGTAPE_THREADS sets the number of threads
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/knn.h"

int main(int argc, char** argv) {
  using namespace ringtape;
  using Clock = std::chrono::steady_clock;
  const auto size = [&](int i, int64_t otherwise) { return argc > i ? int64_t(std::atoll(argv[i])) : otherwise; };
  const int64_t queries = size(1, 10'000), rows = size(2, 50'000), depth = size(3, 512), k = size(4, 200);
  const Tensor q = randn({queries, depth}), bank = randn({rows, depth}), values({queries, k}),
               indices({queries, k}, DType::i64);
  const auto begin = Clock::now();
  nearest_rows(values, indices, q, bank);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"seconds\":%.4f,\"peak_bytes\":%lld}\n", seconds, static_cast<long long>(usage.ru_maxrss) * 1024);
}
