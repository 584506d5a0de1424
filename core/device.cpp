#include "core/device.h"

#include "core/cgroup.h"
#include "core/check.h"
#include "core/env.h"
#include "core/parse.h"
#include "core/runtime.h"

namespace ringtape {

static const char* name_of_type(DeviceType type) { return type == DeviceType::cpu ? "cpu" : "cuda"; }

std::string Device::str() const { return concat(name_of_type(type), ':', index); }

Device parse_device(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  const auto index = colon == std::string::npos ? 0 : parse_number(text.substr(colon + 1), 0, kMaxDevices - 1);
  RT_CHECK_AS(UsageError, (type == "cpu" || type == "cuda") && index, "unknown device '", text,
              "': expected cpu, cpu:N, cuda or cuda:N with N below ", kMaxDevices);
  return {type == "cpu" ? DeviceType::cpu : DeviceType::cuda, *index};
}

// Null if the type is not built in.
static const Runtime* table_of(DeviceType type) { return type == DeviceType::cuda ? &cuda::runtime : &cpu::runtime; }

const Runtime& runtime(Device device) {
  const Runtime* table = table_of(device.type);
  RT_CHECK_AS(DeviceError, table, "no device ", device, ": built without CUDA (reconfigure with -DRINGTAPE_CUDA=ON)");
  const int count = table->device_count();
  RT_CHECK_AS(DeviceError, count > 0, "no device ", device, ": ", table->unavailable_reason());
  RT_CHECK_AS(DeviceError, device.index >= 0 && device.index < count, "no device ", device, ": this machine has ",
              count, " of type ", name_of_type(device.type));
  return *table;
}

bool available(Device device) {
  const Runtime* table = table_of(device.type);
  return table && device.index >= 0 && device.index < table->device_count();
}

static thread_local int thread_count = 0;

int threads() {
  if (thread_count == 0) {
    static const int fallback = env::threads() ? env::threads() : usable_cpus();
    thread_count = fallback;
  }
  return thread_count;
}

void set_threads(int count) {
  RT_CHECK_AS(UsageError, count >= 1 && count <= 1024,
              "the number of threads must be at least 1 and at most 1024, got ", count);
  thread_count = count;
}

MemoryStats memory_stats(Device device) { return runtime(device).stats(device.index); }
void reset_peak_memory(Device device) { runtime(device).reset_peak(device.index); }
void synchronize(Device device) { runtime(device).synchronize(device.index); }

}  // namespace ringtape
