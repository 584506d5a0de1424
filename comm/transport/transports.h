#pragma once
#include <span>

#include "comm/transport.h"

namespace ringtape::comm {

// All transports. Each is in its own file and in the list of transports.cpp.
struct TransportKind {
  const char* name;
  const char* about;  // one line: between which ranks, and what it needs
  std::unique_ptr<Transport> (*make)(Context context);
};
std::span<const TransportKind> transports();

// Ends the job if this rank uses another transport than the ranks of the context that called this before.
void check_same_transport(const Context& context, std::string_view name);

// By name, or "auto": shm if all ranks run on one host, else tcp. All ranks of the context must call it with the same
// name, else it throws CommError. Returns when all have come. Throws UsageError, which lists the names, for an unknown
// name.
std::unique_ptr<Transport> make_transport(std::string_view name, Context context);

std::unique_ptr<Transport> shm_transport(Context context);
std::unique_ptr<Transport> tcp_transport(Context context);
std::unique_ptr<Transport> mpi_transport(Context context);

}  // namespace ringtape::comm
