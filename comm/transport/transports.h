#pragma once
#include <span>

#include "comm/transport.h"

namespace ringtape::comm {

// All transports. Each is in its own file and in the list of transports.cpp.
struct TransportKind {
  const char* name;
  const char* about;  // one line: between which ranks, and what it needs
  DeviceType device;  // of its ranks
  bool one_process;   // its ranks are threads of one process; else they may be processes
  std::unique_ptr<Transport> (*make)(Context context, Device device);  // device: of this rank; null: not in this build
};
std::span<const TransportKind> transports();
std::vector<std::string> transport_names();  // "auto" and all of them

// Throws UsageError for a name that is unknown, with the names there are, or not in this build, with what that needs.
const TransportKind& find_transport(std::string_view name);

// By name, or "auto": on CPUs shm if all ranks run on one host, else tcp; on GPUs nccl if this build has it and each
// rank has its own GPU, else ipc on one host. All ranks of the context must call it with the same name and the same
// type of device, else it throws CommError. Returns when all have come. Throws UsageError as find_transport, if the
// transport is not for such a device, and if no transport fits.
std::unique_ptr<Transport> make_transport(std::string_view name, Context context, Device device = {});

std::unique_ptr<Transport> shm_transport(Context context);
std::unique_ptr<Transport> tcp_transport(Context context);
std::unique_ptr<Transport> mpi_transport(Context context);

}  // namespace ringtape::comm
