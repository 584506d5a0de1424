#pragma once
#include <span>

#include "comm/transport.h"

namespace ringtape::comm {

// All there are; each stands in its own file and in the one list of transports.cpp.
struct TransportKind {
  const char* name;
  const char* about;  // one line: between which ranks, and what it needs
  std::unique_ptr<Transport> (*make)(Context context);
};
std::span<const TransportKind> transports();

// Ends the job where a rank of the context is to use another transport than those that were here before it.
void check_same_transport(const Context& context, std::string_view name);

// By name, or "auto": shm where all ranks run on one host, else tcp. Called by all ranks of the context with the same
// name, else it throws CommError; returns when they have met. Throws UsageError with the names there are.
std::unique_ptr<Transport> make_transport(std::string_view name, Context context);

std::unique_ptr<Transport> shm_transport(Context context);
std::unique_ptr<Transport> tcp_transport(Context context);
std::unique_ptr<Transport> mpi_transport(Context context);

}  // namespace ringtape::comm
