#pragma once
#include "comm/algorithm.h"

// Transports between GPUs; null where the build has none.
namespace ringtape::comm {

using GpuTransportFn = std::unique_ptr<Transport> (*)(Context context, Device device);  // the rank's own

namespace cuda {
[[gnu::weak]] std::unique_ptr<Transport> p2p_transport(Context context, Device device);
[[gnu::weak]] std::unique_ptr<Transport> ipc_transport(Context context, Device device);
[[gnu::weak]] std::unique_ptr<Transport> nccl_transport(Context context, Device device);
extern const Algorithm nccl [[gnu::weak]];
}  // namespace cuda

// Ranks that are threads of this process, on one GPU or several: receivers pull with peer copies, ordered by events.
inline constexpr GpuTransportFn p2p_transport = cuda::p2p_transport;

// Ranks that are processes of one host and user, on one GPU or several that reach each other:
// CUDA's interprocess memory and events.
inline constexpr GpuTransportFn ipc_transport = cuda::ipc_transport;

// A GPU for each rank, wherever the processes are. All ranks make it together: it returns when they have met, and
// throws the failure of the group, or CommError at the deadline.
inline constexpr GpuTransportFn nccl_transport = cuda::nccl_transport;

// NCCL's own collectives, over that transport alone.
inline constexpr const Algorithm* nccl_algorithm = &cuda::nccl;

}  // namespace ringtape::comm
