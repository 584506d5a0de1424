#pragma once
#include <cstdint>
#include <string>

namespace ringtape {

enum class DeviceType : uint8_t { cpu, cuda };
inline constexpr int kDeviceTypes = 2;

// cpu:0, cpu:1 ... are separate devices, like cuda:0, cuda:1 ...: each has its own arena and statistics, and operands
// must be on the same one. So data-parallel code can run and be tested without a GPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  auto operator<=>(const Device&) const = default;
  std::string str() const;  // "cpu:0"
};

inline constexpr int kMaxDevices = 64;  // per type

// Parses "cpu", "cpu:1", "cuda", "cuda:0"; throws UsageError otherwise.
Device parse_device(const std::string& text);

// Number of threads for kernels of the calling thread. Default: RINGTAPE_THREADS, else all cores this process may use.
int threads();
void set_threads(int count);  // 1 to 1024; throws UsageError

}  // namespace ringtape
