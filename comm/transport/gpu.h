#pragma once
#include "comm/transport.h"
#include "kernels/kernel.h"

// Transports between GPUs; null where the build has none.
namespace ringtape::comm {

using GpuTransportFn = std::unique_ptr<Transport> (*)(Context context, Device device);  // the rank's own

namespace cuda {
std::unique_ptr<Transport> p2p_transport(Context context, Device device);
}

// Ranks that are threads of this process, on one GPU or several: receivers pull with peer copies, ordered by events.
inline constexpr GpuTransportFn p2p_transport = RT_CUDA_SLOT(cuda::p2p_transport);

}  // namespace ringtape::comm
