#pragma once
#include <cstdint>
#include <string>

namespace ringtape {

enum class DeviceType : uint8_t { cpu, cuda };
inline constexpr int kDeviceTypes = 2;

// cpu:0, cpu:1 ... are separate devices as cuda:0, cuda:1 ... are: each has its own arena and statistics,
// and operands on two of them do not mix. That is what lets data-parallel code run and be tested without a GPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  auto operator<=>(const Device&) const = default;
  std::string str() const;  // "cpu:0"
};

inline constexpr int kMaxDevices = 64;  // of one type

// Parses "cpu", "cpu:1", "cuda", "cuda:0"; throws UsageError otherwise.
Device parse_device(const std::string& text);

// Threads that the calling thread's kernels use. The default is RINGTAPE_THREADS, else all cores this process may use.
int threads();
void set_threads(int count);  // 1 to 1024; throws UsageError

}  // namespace ringtape
