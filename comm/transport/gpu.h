#pragma once
#include <memory>
#include <string>

#include "comm/algorithm.h"

// Transports between GPUs; null if the build has none.
namespace ringtape::comm {

using GpuTransportFn = std::unique_ptr<Transport> (*)(Context context, Device device);  // device: of this rank

namespace cuda {
[[gnu::weak]] std::unique_ptr<Transport> p2p_transport(Context context, Device device);
[[gnu::weak]] std::unique_ptr<Transport> ipc_transport(Context context, Device device);
[[gnu::weak]] std::unique_ptr<Transport> nccl_transport(Context context, Device device);
[[gnu::weak]] std::string uuid_of(int index);  // of a GPU, the same in all processes: "GPU-01234567-89ab-..."
extern const Algorithm nccl [[gnu::weak]];
[[gnu::weak]] std::string nccl_version();
}  // namespace cuda

// Ranks that are threads of this process, on one GPU or several: receivers pull with peer copies, ordered by events.
inline constexpr GpuTransportFn p2p_transport = cuda::p2p_transport;

// Ranks that are processes of one host and user, on one GPU or on several with peer access: uses CUDA's interprocess
// memory and events.
inline constexpr GpuTransportFn ipc_transport = cuda::ipc_transport;

// One GPU per rank, on any machines. All ranks create it together: it returns when all have come, and throws the
// failure of the group, or CommError at the deadline.
inline constexpr GpuTransportFn nccl_transport = cuda::nccl_transport;

// NCCL's own collectives, only for that transport.
inline constexpr const Algorithm* nccl_algorithm = &cuda::nccl;

using VersionFn = std::string (*)();
inline constexpr VersionFn nccl_version = cuda::nccl_version;  // "2.28.9", of the library that is loaded

}  // namespace ringtape::comm
