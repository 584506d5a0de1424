// NT-Xent forward and backward, tiled or composed of matmul and cross_entropy: one line of JSON, for
// bench/pytorch/nt_xent.py, which runs both and PyTorch in turn.
//   nt_xent_bench tiled|plain [rows] [dims] [seconds] [ranks]        RINGTAPE_THREADS sets the number of threads. With
//   more than one rank there are candidates as from other ranks, with gradients.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <string>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "bench/apart.h"
#include "bench/timing.h"

namespace ringtape {
namespace {

constexpr double kTemperature = 0.5;

// The common implementation, with all scores in memory.
Tensor plain(const Tensor& q, const Tensor& k) {
  const int64_t rows = q.dim(0), n = rows / 2;
  const Tensor row = reshape(arange(rows, DType::f32), {rows, 1}), own = equal(arange(k.dim(0), DType::f32), row);
  const Tensor scores = matmul(q, transpose(k)) / kTemperature;
  const Tensor others = where(own, full({}, -std::numeric_limits<double>::infinity()), scores), image = arange(rows);
  return cross_entropy(others, concat({slice(image, 0, n, rows), slice(image, 0, 0, n)}));
}

// A value of /proc/self/status in bytes.
double status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return 1024 * std::atof(line.c_str() + key.size() + 1);
  return 0;
}

void measure(bool tiled, int64_t rows, int64_t dims, double seconds, int64_t ranks) {
  manual_seed(1);
  const Tensor own = leaf(randn({rows, dims})), others = leaf(randn({(ranks - 1) * rows, dims}));
  const auto call = [&] {
    zero_grad(own), zero_grad(others);
    const Tensor q = l2_normalize(own), k = ranks > 1 ? concat({q, l2_normalize(others)}) : q;
    backward(tiled ? nt_xent(q, k, 0, kTemperature) : plain(q, k));
  };
  const double before = status("VmRSS:");
  call();
  std::vector<double> wall, cpu;
  for (double total = 0; total < seconds || wall.size() < 2; total += wall.back()) {
    const auto begin = std::clock();
    wall.push_back(bench::run_batch(Device{}, 1, call).seconds);
    cpu.push_back(double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::printf("{\"wall\": %.4f, \"cpu\": %.4f, \"peak_mb\": %.1f}\n", 1e3 * bench::median(wall),
              1e3 * bench::median(cpu), (status("VmHWM:") - before) / 1e6);
}

}  // namespace
}  // namespace ringtape

int main(int argc, char** argv) {
  const auto number = [&](int i, double otherwise) { return argc > i ? std::atof(argv[i]) : otherwise; };
  const bool tiled = argc < 2 || std::string(argv[1]) == "tiled";
  ringtape::measure(tiled, int64_t(number(2, 4096)), int64_t(number(3, 128)), number(4, 1), int64_t(number(5, 1)));
}
