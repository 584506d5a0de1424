// The parts of the transports between GPUs that need no GPU.
#include <thread>

#include "comm/transport/call_log.h"
#include "comm/transport/gpu.h"
#include "comm/transport/transports.h"
#include "comm/transport/unique_devices.h"
#include "core/runtime.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

// The error of each rank, empty for none.
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

// By name, each on its devices only, and only if the build has it.
TEST(GpuTransport, ThatDoesNotFitIsRefused) {
  const Device gpu{DeviceType::cuda, 0};
  for (const TransportKind& kind : transports())
    for (const Device device : {Device{}, gpu}) {
      if (kind.device == device.type && kind.make) continue;
      const std::string text = ringtape::test::message_of<UsageError>([&] {
        make_transport(kind.name, {0, 1, memory_store(), std::make_shared<Failure>(), Seconds(20)}, device);
      });
      EXPECT_MENTIONS(text, concat("transport ", kind.name,
                                   !kind.make      ? ": not in this build; build it with -DRINGTAPE_CUDA=ON"
                                   : device == gpu ? ": between CPUs, but this rank is on cuda:0; choose "
                                                   : ": between GPUs, but this rank is on cpu:0; choose another device "
                                                     "or one of: auto, threads, shm, tcp, mpi"));
    }
}

TEST(GpuTransport, RanksOfOneGpuAreRefusedWithATable) {
  for (const std::string& cause : checked({{"a", "GPU-1"}, {"b", "GPU-2"}, {"b", "GPU-1"}, {"a", "GPU-2"}}))
    EXPECT_EQ(cause, "");
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
  EXPECT_NE(test::message_of<CommError>([&] { check_unique_devices(alone, "a", "GPU-1"); }).find("device/1/host"),
            std::string::npos);
}

TEST(GpuTransport, TheMachineIsTheSameEachTime) { EXPECT_EQ(machine_id(), machine_id()); }

Operation call(uint64_t sequence, int64_t count) {
  return {.kind = Collective::all_reduce, .dtype = DType::f32, .count = count, .sequence = sequence};
}

// Three ranks after some calls: rank 2's call number `different` differs. One of the ranks waits.
std::string compared(int who_waits, uint64_t calls, uint64_t different) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::vector<Context> contexts;
  for (int r = 0; r < 3; ++r) contexts.push_back({r, 3, store, failure});
  CallLog logs[] = {CallLog(contexts[0]), CallLog(contexts[1]), CallLog(contexts[2])};
  for (uint64_t i = 1; i <= calls; ++i)
    for (int r = 0; r < 3; ++r) logs[r].add(call(i, r == 2 && i == different ? 101 : 100));
  for (int round = 0; round < 2; ++round)
    for (int r = 0; r < 3; ++r) logs[r].look(r == who_waits);
  return failure->cause();
}

TEST(GpuTransport, CallsAreComparedOnceSomebodyWaits) {
  EXPECT_EQ(compared(-1, 5, 3), "");
  EXPECT_EQ(compared(1, 5, 0), "");
  for (const int who : {0, 1, 2})
    EXPECT_EQ(compared(who, 5, 3),
              "the ranks make different calls: rank 2 calls all_reduce #3 (sum, f32, 101 elements), rank 0 calls "
              "all_reduce #3 (sum, f32, 100 elements); every rank must make the same calls, in the same order");
  EXPECT_NE(compared(0, 1000, 990), "");
  EXPECT_EQ(compared(0, 1000, 3), "");  // too long ago
}

// A rank that is behind is not reported as a rank with different calls.
TEST(GpuTransport, ALateRankIsNoMismatch) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  const Context first{0, 2, store, failure}, second{1, 2, store, failure};
  CallLog ahead(first), behind(second);
  for (uint64_t i = 1; i <= 300; ++i) ahead.add(call(i, int64_t(i)));
  for (uint64_t i = 1; i <= 290; ++i) behind.add(call(i, int64_t(i)));
  for (int round = 0; round < 2; ++round) {
    ahead.look(true);
    behind.look(false);
  }
  EXPECT_EQ(failure->cause(), "");
  behind.add(call(291, 7));
  behind.look(false);
  EXPECT_NE(failure->cause().find(
                "rank 1 calls all_reduce #291 (sum, f32, 7 elements), rank 0 calls all_reduce #291 (sum, f32, 291"),
            std::string::npos)
      << failure->cause();
}

TEST(GpuTransport, AnAbsentBackendIsAnEmptySlot) {
  const bool cuda = &ringtape::cuda::runtime != nullptr;
  EXPECT_EQ(p2p_transport != nullptr, cuda);
  EXPECT_EQ(ipc_transport != nullptr, cuda);
  EXPECT_EQ(nccl_transport == nullptr, nccl_algorithm == nullptr);
}

TEST(GpuTransports, ADeviceThatIsNotThereIsNamed) {
  const Context context{0, 2, memory_store(), std::make_shared<Failure>()};
  const std::string message = test::message_of<DeviceError>([&] {
    make_transport("auto", context, {DeviceType::cuda, 63});
  });
  EXPECT_NE(message.find("no device cuda:63"), std::string::npos) << message;
}

}  // namespace
}  // namespace ringtape::comm
