// matmul beside oneDNN and OpenBLAS, alternating in one run: median GFLOP/s of each, and the ratio to the best peer.
//   gemm_bench [rounds]        RINGTAPE_THREADS sets the threads of all three.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
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
                   cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(m), int(n), int(k), 1, a, int(k), b, int(n), 0, c, int(n));
                 }});
#endif
  return out;
}

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
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
              std::string(name_of(cpu_isa())).c_str(), bench::peak_flops() / 1e9, rounds);
  std::printf("%-18s %10s", "m x n x k", "ringtape");
  for (const Peer& p : others) std::printf(" %10s", p.name.c_str());
  std::printf("   ringtape / best\n");
  const int64_t shapes[][3] = {{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {8192, 64, 576}, {1024, 512, 4608}, {16, 128, 784}, {128, 784, 16}};
  for (const auto& [m, n, k] : shapes) {
    const Tensor a = randn({m, k}), b = randn({k, n}), c({m, n});
    const auto ours = [&] { matmul_forward(c.window({1, m, n}, {0, n, 1}), a.window({1, m, k}, {0, k, 1}), b.window({1, k, n}, {0, n, 1})); };
    const double flops = 2.0 * double(m * n * k);
    const int inner = int(std::max(1.0, 4e8 / flops));
    std::vector<std::vector<double>> rates(others.size() + 1);
    for (int round = -1; round < rounds; ++round)
      for (size_t who = 0; who <= others.size(); ++who) {
        // The peers' threads spin for a while after a call, on cores that the next one needs.
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        const double s = seconds([&] {
          for (int i = 0; i < inner; ++i)
            who == 0 ? ours() : others[who - 1].multiply(m, n, k, a.data<float>(), b.data<float>(), c.data<float>());
        });
        if (round >= 0) rates[who].push_back(flops * inner / s / 1e9);
      }
    double best = 0;
    for (size_t who = 1; who < rates.size(); ++who) best = std::max(best, median(rates[who]));
    std::printf("%-18s %10.1f", (std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k)).c_str(), median(rates[0]));
    for (size_t who = 1; who < rates.size(); ++who) std::printf(" %10.1f", median(rates[who]));
    std::printf("   %.2f\n", best > 0 ? median(rates[0]) / best : 0.0);
  }
}
