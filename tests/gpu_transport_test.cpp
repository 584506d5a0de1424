// What the transports between GPUs do before there is a GPU.
#include <thread>

#include "comm/transport/gpu.h"
#include "comm/transport/unique_devices.h"
#include "tests/support.h"

namespace ringtape::comm {
namespace {

// What each rank threw, or nothing.
std::vector<std::string> checked(const std::vector<std::pair<std::string, std::string>>& host_and_device) {
  const auto store = memory_store();
  const int n = int(host_and_device.size());
  std::vector<std::string> causes(host_and_device.size());
  std::vector<std::thread> ranks;
  for (int r = 0; r < n; ++r)
    ranks.emplace_back([&, r] {
      try {
        const auto& [host, device] = host_and_device[size_t(r)];
        check_unique_devices({r, n, store, nullptr, Seconds(20)}, host, device);
      } catch (const CommError& e) {
        causes[size_t(r)] = e.what();
      }
    });
  for (std::thread& t : ranks) t.join();
  return causes;
}

TEST(GpuTransport, RanksOfOneGpuAreRefusedWithATable) {
  for (const std::string& cause : checked({{"a", "GPU-1"}, {"b", "GPU-2"}, {"b", "GPU-1"}, {"a", "GPU-2"}})) EXPECT_EQ(cause, "");
  const auto causes = checked({{"a", "GPU-1"}, {"a", "GPU-2"}, {"a", "GPU-1"}});
  for (const std::string& cause : causes) {
    EXPECT_EQ(cause, causes[0]);
    EXPECT_NE(cause.find("ranks 0 and 2 have the same GPU"), std::string::npos) << cause;
    EXPECT_NE(cause.find("\n  rank 1  pid "), std::string::npos) << cause;
    EXPECT_NE(cause.find("  GPU-2  host a"), std::string::npos) << cause;
  }
}

TEST(GpuTransport, AMissingRankIsNotWaitedForLong) {
  const Context alone{0, 2, memory_store(), nullptr, Seconds(0.05)};
  EXPECT_NE(test::message_of<CommError>([&] { check_unique_devices(alone, "a", "GPU-1"); }).find("device/1/host"), std::string::npos);
}

TEST(GpuTransport, TheMachineIsTheSameEachTime) { EXPECT_EQ(machine_id(), machine_id()); }

TEST(GpuTransport, AnAbsentBackendIsAnEmptySlot) {
  EXPECT_EQ(p2p_transport != nullptr, RINGTAPE_CUDA != 0);
  EXPECT_EQ(nccl_transport == nullptr, nccl_algorithm == nullptr);
}

}  // namespace
}  // namespace ringtape::comm
