// matmul compared with oneDNN and OpenBLAS, alternating, each in a separate process. Prints the median over rounds of
// the best of ten calls, in GFLOP/s, and the ratio to the best peer.
//   gemm_bench [rounds]        RINGTAPE_THREADS sets the number of threads.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "bench/apart.h"
#include "bench/peak.h"
#include "kernels/kernel.h"
#include "kernels/matmul.h"

#if RINGTAPE_BENCH_ONEDNN
#include <dnnl.h>
#endif
#if RINGTAPE_BENCH_OPENBLAS
#include <cblas-openblas.h>
#endif
#include <omp.h>

namespace ringtape {
namespace {

struct Peer {
  std::string name;
  std::function<void(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c)> multiply;
};

std::vector<Peer> peers() {
  std::vector<Peer> out;
#if RINGTAPE_BENCH_ONEDNN
  out.push_back({"oneDNN", [](int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
                   dnnl_sgemm('N', 'N', m, n, k, 1, a, k, b, n, 0, c, n);
                 }});
#endif
#if RINGTAPE_BENCH_OPENBLAS
  out.push_back({"OpenBLAS", [](int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
                   cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(m), int(n), int(k), 1, a, int(k), b,
                               int(n), 0, c, int(n));
                 }});
#endif
  return out;
}

// GFLOP/s of c = a b: the best of a few calls after one warm-up call.
double rate(int64_t m, int64_t n, int64_t k, const Peer* peer) {
  const Tensor a = randn({m, k}), b = randn({k, n}), c({m, n});
  const auto call = [&] {
    if (peer) peer->multiply(m, n, k, a.data<float>(), b.data<float>(), c.data<float>());
    else matmul_forward(c.window({1, m, n}, {0, n, 1}), a.window({1, m, k}, {0, k, 1}), b.window({1, k, n}, {0, n, 1}));
  };
  const double flops = 2.0 * double(m * n * k);
  const int calls = int(std::max(10.0, 4e8 / flops));
  double best = 1e9;
  for (int i = -1; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i >= 0) best = std::min(best, seconds);
  }
  return flops / best / 1e9;
}

}  // namespace
}  // namespace ringtape

int main(int argc, char** argv) {
  using namespace ringtape;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::vector<Peer> others = peers();
#if RINGTAPE_BENCH_OPENBLAS
  openblas_set_num_threads(threads());
#endif
  omp_set_num_threads(threads());
  std::printf("%d threads, %s, f32 peak %.0f GFLOP/s; median of %d alternating rounds, GFLOP/s\n", threads(),
              std::string(name_of(cpu_isa())).c_str(), bench::apart(bench::peak_flops) / 1e9, rounds);
  std::printf("%-18s %10s", "m x n x k", "ringtape");
  for (const Peer& p : others) std::printf(" %10s", p.name.c_str());
  std::printf("   ringtape / best\n");
  const int64_t shapes[][3] = {{512, 512, 512},   {1024, 1024, 1024}, {2048, 2048, 2048}, {8192, 64, 576},
                               {1024, 512, 4608}, {16, 128, 784},     {128, 784, 16}};
  for (const auto& [m, n, k] : shapes) {
    std::vector<std::vector<double>> rates(others.size() + 1);
    for (int round = 0; round < rounds; ++round)
      for (size_t who = 0; who <= others.size(); ++who)
        rates[who].push_back(
            bench::apart([&, m = m, n = n, k = k] { return rate(m, n, k, who ? &others[who - 1] : nullptr); }));
    double best = 0;
    for (size_t who = 1; who < rates.size(); ++who) best = std::max(best, bench::median(rates[who]));
    std::printf("%-18s %10.1f", (std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k)).c_str(),
                bench::median(rates[0]));
    for (size_t who = 1; who < rates.size(); ++who) std::printf(" %10.1f", bench::median(rates[who]));
    std::printf("   %.2f\n", best > 0 ? bench::median(rates[0]) / best : 0.0);
  }
}
