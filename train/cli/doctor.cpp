#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/env.h"
#include "core/runtime.h"
#include "kernels/kernel.h"
#include "train/cli/command.h"
#include "train/data/dataset.h"
#include "train/data/sets/download.h"
#include "train/io/json.h"
#include "train/run/device_check.h"
#include "train/run/environment.h"

namespace ringtape::cli {
namespace {

std::string why_no_cuda() {
  try {
    runtime({DeviceType::cuda, 0});
  } catch (const DeviceError& e) {
    return e.what();
  }
  return {};
}

// 512^3 multiply-adds, compared with plain loops on a sample of elements.
std::string check_matmul() {
  const int64_t n = 512;
  const Tensor a = rand({n, n}, -1, 1), b = rand({n, n}, -1, 1);
  Tensor c = matmul(a, b);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i) c = matmul(a, b);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (int64_t at = 0; at < n * n; at += 7919) {
    double sum = 0;
    for (int64_t p = 0; p < n; ++p) sum += double(a.data<float>()[at / n * n + p]) * b.data<float>()[p * n + at % n];
    const double got = c.data<float>()[at];
    RT_CHECK(std::abs(got - sum) < 1e-3, "matmul gave ", got, " instead of ", sum);
  }
  return concat(int64_t(8 * 2e-9 * double(n) * double(n) * double(n) / seconds), " GFLOP/s in f32");
}

// d/dx of sum(tanh(x)^2), against central differences.
std::string check_gradient() {
  const Tensor x = leaf(from_host(std::vector<double>{-1.5, -0.3, 0.2, 0.9}, {4}));
  const auto f = [](const Tensor& t) { return sum(square(tanh(t))); };
  backward(f(x));
  for (int64_t i = 0; i < 4; ++i) {
    const double value = x.data<double>()[i], h = 1e-6;
    const auto at = [&](double v) { return f(from_host(std::vector<double>{v}, {1})).item(); };
    const double numeric = (at(value + h) - at(value - h)) / (2 * h), got = grad(x).data<double>()[i];
    RT_CHECK(std::abs(got - numeric) < 1e-7, "gradient ", got, " instead of ", numeric);
  }
  return "agrees with central differences";
}

std::string check_runs_folder() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::exists("runs") ? fs::path("runs") : fs::path(".");
  RT_CHECK_AS(IoError, ::access(folder.c_str(), W_OK | X_OK) == 0, fs::absolute(folder).string(),
              ": cannot write: ", std::strerror(errno), "; use train --run /elsewhere/NAME");
  return concat(fs::absolute(folder).lexically_normal().string(), ", ", fs::space(folder).available >> 30, " GiB free");
}

// Missing files are no failure; files that cannot be read are.
DeviceCheck check_data(const DatasetEntry& entry) {
  const std::string name = concat("data ", entry.name);
  try {
    const Splits splits = entry.load({});
    return {name, concat(splits.train.size(), " + ", splits.test.size(), " images in ", splits.train.source), true};
  } catch (const MissingData&) {
    return {name, "no files (RINGTAPE_DATA_DIR names their folder)", true, true};
  } catch (const std::exception& e) {
    return {name, e.what(), false};
  }
}

// wanted: a device that must be there, or null
void run_checks(const std::string* wanted, const DeviceCheckFn& done) {
  const Device device = wanted ? parse_device(*wanted) : Device{};
  done(run_check("matmul", check_matmul));
  done(run_check("autograd", check_gradient));
  if (!available(device)) done(run_check(*wanted, [&] { return runtime(device).describe(device.index); }));  // says why
  check_gpus(done);
  done(run_check("run folder", check_runs_folder));
  for (const DatasetEntry& entry : datasets())
    if (is_published(entry.name)) done(check_data(entry));
}

void print_environment(const Json& report) {
  for (const auto& [key, value] : report.items())
    if (!value.is_object() && !value.is_list() && !value.is_null() && key != "auto_precision")
      std::printf("%-12s %s\n", key.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.text().c_str());
  std::printf("%-12s %s is the fastest here for training (--precision auto)\n", "precision",
              report["auto_precision"].get<std::string>().c_str());
  for (const auto& gpu : report["gpus"]) std::printf("%-12s %s\n", "gpu", gpu.get<std::string>().c_str());
  if (!report["cuda"].get<bool>()) std::printf("%-12s %s\n", "", why_no_cuda().c_str());
  for (const auto& [key, value] : report["libraries"].items())
    std::printf("%-12s %s\n", key.c_str(), value.get<std::string>().c_str());
  for (const auto& [key, value] : report["variables"].items())
    std::printf("%s=%s\n", key.c_str(), value.get<std::string>().c_str());
}

// "ringtape 0.1.0 (1b2c3d4), NVIDIA H200, sm_90, 141 GB, CUDA 13.0, ..."
std::string versions(const Json& report) {
  std::string out = concat("ringtape ", report["ringtape"].get<std::string>(), " (",
                           report["revision"].get<std::string>(), "), ", report["cpu"].get<std::string>());
  for (const Json& gpu : report["gpus"]) out += ", " + gpu.get<std::string>();
  const std::string libraries = cuda_versions();
  return libraries.empty() ? out : out + ", " + libraries;
}

int run_doctor(const Invocation& invocation) {
  const bool json = invocation.has("json");
  Json report = environment(invocation.command_line);
  if (!json) print_environment(report);
  std::vector<DeviceCheck> failed;
  run_checks(invocation.flag("device"), [&](const DeviceCheck& c) {
    if (!c.passed) failed.push_back(c);
    report["checks"][c.name] = {{"passed", c.passed}, {"result", c.result}};
    if (json) return;
    std::printf("%s  %-27s %s\n",
                c.skipped  ? "-     "
                : c.passed ? "ok    "
                           : "FAILED",
                c.name.c_str(), c.result.c_str());
    std::fflush(stdout);  // a device that answers no more is known by what came before
  });
  if (json) std::printf("%s\n", report.text(2).c_str());
  if (failed.empty()) return 0;
  const std::string others = failed.size() > 1 ? concat("; ", failed.size(), " checks failed") : "";
  throw Error(concat(failed[0].name, ": ", failed[0].result, others, "; ", versions(report)));
}

}  // namespace

Command doctor_command() {
  Command command;
  command.name = "doctor";
  command.summary = "Describes this machine and build, and checks that ringtape works; for bug reports.";
  command.usage = "[FLAGS]";
  command.examples = {"doctor", "doctor --device cuda", "doctor --json"};
  command.flags = {{"Checks", "device", "NAME", "device that must be there: cuda or cuda:N", ""},
                   {"Output", "json", "", "print one JSON object", ""}};
  command.run = run_doctor;
  return command;
}

}  // namespace ringtape::cli
