#pragma once
#include "comm/algorithm.h"
#include "kernels/kernel.h"

// Transports between GPUs; null where the build has none.
namespace ringtape::comm {

using GpuTransportFn = std::unique_ptr<Transport> (*)(Context context, Device device);  // the rank's own

namespace cuda {
std::unique_ptr<Transport> p2p_transport(Context context, Device device);
std::unique_ptr<Transport> ipc_transport(Context context, Device device);
std::unique_ptr<Transport> nccl_transport(Context context, Device device);
extern const Algorithm nccl;
}  // namespace cuda

#if RINGTAPE_NCCL
#define RT_NCCL_SLOT(what) what
#else
#define RT_NCCL_SLOT(what) nullptr
#endif

// Ranks that are threads of this process, on one GPU or several: receivers pull with peer copies, ordered by events.
inline constexpr GpuTransportFn p2p_transport = RT_CUDA_SLOT(cuda::p2p_transport);

// Ranks that are processes of one host and user, on one GPU or several that reach each other: CUDA's interprocess memory and events.
inline constexpr GpuTransportFn ipc_transport = RT_CUDA_SLOT(cuda::ipc_transport);

// A GPU for each rank, wherever the processes are. All ranks make it together: it returns when they have met, and throws the failure
// of the group, or CommError at the deadline.
inline constexpr GpuTransportFn nccl_transport = RT_NCCL_SLOT(cuda::nccl_transport);

// NCCL's own collectives, over that transport alone.
inline constexpr const Algorithm* nccl_algorithm = RT_NCCL_SLOT(&cuda::nccl);

}  // namespace ringtape::comm
