#include "comm/transport/transports.h"

#include <set>

#include "comm/transport/gpu.h"
#include "comm/transport/host.h"
#include "core/registry.h"
#include "core/runtime.h"

namespace ringtape::comm {

namespace {

template <std::unique_ptr<Transport> (*make)(Context)> std::unique_ptr<Transport> on_cpu(Context context, Device) {
  return make(std::move(context));
}

constexpr auto kCpu = DeviceType::cpu, kGpu = DeviceType::cuda;

constexpr TransportKind kTransports[] = {
    {"threads", "threads of one process: bench collectives, --sync-bn of dp", kCpu, true, on_cpu<threads_transport>},
    {"shm", "processes of one host and user, through shared memory", kCpu, false, on_cpu<shm_transport>},
    {"tcp", "processes of any hosts that reach each other's addresses; RINGTAPE_TCP_SOCKETS", kCpu, false,
     on_cpu<tcp_transport>},
    {"mpi", "processes that mpirun or Slurm has started; needs Open MPI's libmpi.so.40", kCpu, false,
     on_cpu<mpi_transport>},
    {"nccl", "processes of any hosts, each with its own GPU, by NVIDIA's library", kGpu, false, nccl_transport},
    {"ipc", "processes of one host and user, on one GPU or several that peer, through CUDA's interprocess memory", kGpu,
     false, ipc_transport},
    {"p2p", "threads of one process, on one GPU or several, by peer copies: bench collectives, --sync-bn of dp", kGpu,
     true, p2p_transport},
};

void check_same_transport(const Context& context, const std::string& mine) {
  const std::string first = context.store->set_once("transport", mine);
  if (first == mine) return;
  context.failure->raise(concat("rank ", context.rank, " uses the transport ", mine, ", the ranks before it ", first,
                                "; choose the same on all ranks"));
  context.failure->check();
}

const char* automatic(const Context& context, Device device) {
  const std::string host = host_identity("pid"), gpu = device.type == kGpu ? cuda::uuid_of(device.index) : "";
  bool nccl = nccl_transport;  // in the builds of all ranks
  const Deadline deadline(context.timeout);
  context.store->set(concat("auto/", context.rank), concat(host, " ", gpu, nccl ? " nccl" : ""));
  bool one_host = true;
  std::set<std::string> gpus;
  for (int r = 0; r < context.size; ++r) {
    const std::string theirs = context.store->wait(concat("auto/", r), deadline);
    one_host = one_host && theirs.starts_with(host + " ");
    nccl = nccl && theirs.ends_with(" nccl");
    gpus.insert(theirs.substr(theirs.find(' ')));
  }
  if (device.type == kCpu) return one_host ? "shm" : "tcp";
  if (nccl && (int(gpus.size()) == context.size || !one_host)) return "nccl";
  RT_CHECK_AS(UsageError, one_host,
              "ranks on GPUs of several hosts or containers need NCCL, which this build does not have; build it where "
              "nccl.h is installed, or use --device cpu");
  return "ipc";
}

}  // namespace

std::span<const TransportKind> transports() { return kTransports; }

std::vector<std::string> transport_names() {
  std::vector<std::string> out = names_of(kTransports);
  out.insert(out.begin(), "auto");
  return out;
}

const TransportKind& find_transport(std::string_view name) {
  check_known("transport", name, transport_names());
  const TransportKind& kind = find_entry(kTransports, name, "transport");
  RT_CHECK_AS(UsageError, kind.make, "transport ", name, ": not in this build; build it with -DRINGTAPE_CUDA=ON",
              name == "nccl" ? " where nccl.h is installed" : "");
  return kind;
}

std::unique_ptr<Transport> make_transport(std::string_view name, Context context, Device device) {
  const bool gpu = device.type == kGpu;
  if (name != "auto") {
    const DeviceType wanted = find_transport(name).device;
    std::string fitting = "auto";
    for (const TransportKind& kind : kTransports)
      if (kind.device == device.type && kind.make) fitting += concat(", ", kind.name);
    RT_CHECK_AS(UsageError, wanted == device.type, "transport ", name, ": between ", gpu ? "CPUs" : "GPUs",
                ", but this rank is on ", device, "; choose another device or one of: ", fitting);
  }
  if (gpu) runtime(device);  // throws if there is none
  check_same_transport(context, concat(name, gpu ? " on GPUs" : ""));
  const TransportKind& kind = find_transport(name == "auto" ? automatic(context, device) : name);
  return kind.make(std::move(context), device);
}

}  // namespace ringtape::comm
