#include "train/run/environment.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>

#include "comm/transport/gpu.h"
#include "core/cgroup.h"
#include "core/device.h"
#include "core/env.h"
#include "core/runtime.h"
#include "kernels/bf16_unit.h"
#include "kernels/cuda/libraries.h"
#include "kernels/kernel.h"
#include "train/io/json.h"
#include "train/run/processor.h"
#include "train/run/time_text.h"
#include "train/run/version.h"

namespace ringtape {
namespace {

Json libraries() {
  Json out{{"fmt", concat(FMT_VERSION / 10000, '.', FMT_VERSION / 100 % 100, '.', FMT_VERSION % 100)},
           {"nlohmann-json", json_library()},
           {"toml++", kTomlVersion},
           {"zlib", zlibVersion()}};
  out.update(cuda_libraries());
  return out;
}

// A description of each GPU; for one that this build has no kernels for, the reason.
Json gpus() {
  Json out = Json::list();
  for (Device gpu{DeviceType::cuda, 0}; available(gpu); ++gpu.index) {
    try {
      out.push_back(runtime(gpu).describe(gpu.index));
    } catch (const DeviceError& e) {
      out.push_back(e.what());
    }
  }
  return out;
}

// What --precision auto is on the device that --device auto is.
std::string precision_here() {
  const Device gpu{DeviceType::cuda, 0};
  try {
    return auto_precision(available(gpu) ? gpu : Device{});
  } catch (const DeviceError&) {  // a GPU that this build has no kernels for
    return auto_precision({});
  }
}

}  // namespace

Json cuda_libraries() {
  Json out = Json::object();
  if (&cuda::libraries == nullptr) return out;
  for (const auto& [name, version] : cuda::libraries()) out[name] = version;
  out["NCCL"] = comm::nccl_version ? comm::nccl_version() : "none";
  return out;
}

std::string cuda_versions() {
  const Json libraries = cuda_libraries();
  std::string out;
  for (const auto& [name, version] : libraries.items())
    out += concat(out.empty() ? "" : ", ", name, ' ', version.get<std::string>());
  return out;
}

bool multiplies_bf16(Device device) {
  runtime(device);
  if (device.type == DeviceType::cpu) return bf16_choice().unit != Bf16Unit::converted;
  return &cuda::multiplies_bf16 != nullptr && cuda::multiplies_bf16(device.index);
}

std::string auto_precision(Device device) { return multiplies_bf16(device) ? "bf16" : "f32"; }

Json environment(const std::vector<std::string>& command_line) {
  utsname system{};
  ::uname(&system);
  Json variables = Json::object();
  for (const env::Variable& v : env::variables())
    if (const char* value = std::getenv(v.name)) variables[v.name] = v.secret ? "(not shown)" : value;
  const std::string features = processor_features();
  const auto quota = Cgroups().cpus();
  const auto limit = Cgroups().memory();
  return {{"ringtape", kVersion},
          {"revision", kRevision},
          {"time", utc_time_text("%FT%TZ")},
          {"command_line", command_line},
          {"host", system.nodename},
          {"system", concat(system.sysname, ' ', system.release, ' ', system.machine)},
          {"cpu", processor_name()},
          {"cpu_features", features.empty() ? Json() : Json(features)},  // of Arm
          {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"cpu_quota", quota ? Json(*quota) : Json()},  // the limit of a container, in CPUs
          {"memory", proc_value("/proc/meminfo", "MemTotal")},
          {"memory_limit", limit ? Json(concat(*limit >> 10, " kB")) : Json()},  // of a container
          {"isa", std::string(name_of(cpu_isa()))},
          {"bf16_unit", std::string(name_of(bf16_choice().unit))},  // of the CPU
          {"auto_precision", precision_here()},
          {"threads", threads()},
          {"cuda", available({DeviceType::cuda, 0})},
          {"gpus", gpus()},
          {"compiler", concat("GCC ", __VERSION__)},
          {"libraries", libraries()},
          {"variables", variables}};
}

}  // namespace ringtape
