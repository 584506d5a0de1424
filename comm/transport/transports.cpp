#include "comm/transport/transports.h"

#include <algorithm>

#include "comm/transport/host.h"

namespace ringtape::comm {

namespace {

constexpr TransportKind kTransports[] = {
    {"threads", "ranks that are threads of one process", threads_transport},
    {"shm", "processes of one host and user, through shared memory", shm_transport},
    {"tcp", "processes of any hosts that reach each other's addresses; RINGTAPE_TCP_SOCKETS", tcp_transport},
    {"mpi", "processes that mpirun or Slurm has started; needs Open MPI's libmpi.so.40", mpi_transport},
};

bool on_one_host(const Context& context) {
  const std::string own = host_identity("pid");
  const Deadline deadline(context.timeout);
  context.store->set(concat("auto/", context.rank), own);
  bool all = true;
  for (int r = 0; r < context.size; ++r) all = context.store->wait(concat("auto/", r), deadline) == own && all;
  return all;
}

}  // namespace

std::span<const TransportKind> transports() { return kTransports; }

void check_same_transport(const Context& context, std::string_view name) {
  const std::string mine(name), first = context.store->set_once("transport", mine);
  if (first == mine) return;
  context.failure->raise(concat("rank ", context.rank, " uses the transport ", mine, ", the ranks before it ", first,
                                "; choose the same on all ranks"));
  context.failure->check();
}

std::unique_ptr<Transport> make_transport(std::string_view name, Context context) {
  const auto kind_of = [](std::string_view wanted) {
    return std::find_if(std::begin(kTransports), std::end(kTransports),
                        [&](const TransportKind& kind) { return kind.name == wanted; });
  };
  if (name != "auto" && kind_of(name) == std::end(kTransports)) {
    std::string all = "auto";
    for (const TransportKind& kind : kTransports) all += concat(", ", kind.name);
    throw UsageError(concat("unknown transport '", name, "'; available: ", all));
  }
  check_same_transport(context, name);
  if (name == "auto") name = on_one_host(context) ? "shm" : "tcp";
  return kind_of(name)->make(std::move(context));
}

}  // namespace ringtape::comm
