// NT-Xent forward and backward, in tiles or composed of matmul and cross_entropy: one line of JSON, for bench/pytorch/nt_xent.py, which
// runs both and PyTorch in turn.
//   nt_xent_bench tiled|plain [rows] [dims] [seconds]        RINGTAPE_THREADS sets the threads.
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
#include "nn/loss/nt_xent.h"

namespace ringtape {
namespace {

constexpr double kTemperature = 0.5;

// As lightly and most implementations do, with all scores in memory.
Tensor plain(const Tensor& z0, const Tensor& z1) {
  const int64_t n = z0.dim(0), rows = 2 * n;
  const Tensor u = l2_normalize(concat({z0, z1}));
  const Tensor index = arange(rows, DType::f32), own = equal(index, reshape(index, {rows, 1}));
  const Tensor scores = matmul(u, transpose(u)) / kTemperature;
  const Tensor masked = where(own, full({}, -std::numeric_limits<double>::infinity()), scores);
  const Tensor image = arange(rows);
  return cross_entropy(masked, concat({slice(image, 0, n, rows), slice(image, 0, 0, n)}));
}

// A line of /proc/self/status in bytes.
double status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return 1024 * std::atof(line.c_str() + key.size() + 1);
  return 0;
}

void measure(bool tiled, int64_t rows, int64_t dims, double seconds) {
  manual_seed(1);
  const Tensor z0 = leaf(randn({rows / 2, dims})), z1 = leaf(randn({rows / 2, dims}));
  const auto call = [&] {
    zero_grad(z0), zero_grad(z1);
    backward(tiled ? nn::nt_xent_loss(z0, z1, kTemperature) : plain(z0, z1));
  };
  const double before = status("VmRSS:");
  call();
  std::vector<double> wall, cpu;
  for (double total = 0; total < seconds || wall.size() < 2; total += wall.back()) {
    const auto begin = std::clock();
    wall.push_back(bench::run_batch(Device{}, 1, call).seconds);
    cpu.push_back(double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::printf("{\"wall\": %.4f, \"cpu\": %.4f, \"peak_mb\": %.1f}\n", 1e3 * bench::median(wall), 1e3 * bench::median(cpu),
              (status("VmHWM:") - before) / 1e6);
}

}  // namespace
}  // namespace ringtape

int main(int argc, char** argv) {
  const auto number = [&](int i, double otherwise) { return argc > i ? std::atof(argv[i]) : otherwise; };
  const bool tiled = argc < 2 || std::string(argv[1]) == "tiled";
  ringtape::measure(tiled, int64_t(number(2, 4096)), int64_t(number(3, 128)), number(4, 1));
}
