#include "train/strategy/parallel.h"

#include "comm/transport/transports.h"
#include "core/parse.h"
#include "core/registry.h"

namespace ringtape {

std::vector<int> ParallelOptions::gpus() const {
  std::vector<int> out;
  if (gpu_ids.empty()) return out;
  for (const std::string& word : split_text(gpu_ids)) {
    const auto id = parse_number(word, 0, kMaxDevices - 1);
    RT_CHECK_AS(UsageError, id, "--gpu-ids ", gpu_ids, ": expected numbers of GPUs below ", kMaxDevices,
                " separated by commas, as in 0,2");
    out.push_back(*id);
  }
  return out;
}

int64_t ParallelOptions::own_devices() const {
  if (!entry().replicas) return 1;
  const auto named = int64_t(gpus().size());
  RT_CHECK_AS(UsageError, named == 0 || devices == 1 || devices == named, "--devices ", devices, ": --gpu-ids has ",
              named);
  return named > 0 ? named : devices;
}

void visit(Fields& f, ParallelOptions& o) {
  f("strategy", o.strategy.name,
    {.help = "how the devices divide the work; `ringtape list strategies` says how each does",
     .unit = "NAME",
     .choices = [] { return names_of(strategies()); },
     .may_change = true,
     .selects = true});
  f("devices", o.devices,
    {.help = "number of devices of this machine: dp and ddp2 use them in each process; ddp starts one rank per device "
             "unless a launcher has done so",
     .unit = "N",
     .range = {1, 4096},
     .scope = FieldScope::rank,
     .may_change = true});
  f("gpu-ids", o.gpu_ids,
    {.help = "numbers of the GPUs to use, as in 2,3; with ddp, rank r of a machine uses the r-th of them",
     .unit = "LIST",
     .automatic = "cuda:0, cuda:1 ...",
     .scope = FieldScope::rank,
     .may_change = true});
  f("transport", o.transport,
    {.help = "how ranks exchange messages; `ringtape list transports` says between which ranks",
     .unit = "NAME",
     .choices = comm::transport_names,
     .scope = FieldScope::rank,
     .may_change = true});
  f("sync-bn", o.sync_bn, {.help = "batch normalisation uses the samples of all ranks or devices"});
  f("shares", o.shares,
    {.help = "divide each batch into so many fixed parts, which the ranks compute and add in an order of their own: "
             "the same bits for 1 to N ranks, whichever come and go; 0: one part for each rank",
     .unit = "N",
     .range = {0, 4096}});
  visit(f, o.reducer);
  f("comm-timeout", o.comm_timeout,
    {.help = "maximum seconds to wait for another rank; then the training ends and reports what each rank is doing (a "
             "rank that dies ends it at once)",
     .unit = "SECONDS",
     .range = {0.001, 1e8},
     .scope = FieldScope::rank,
     .may_change = true});
  visit(f, o.elastic);
}

void check_shares(const ParallelOptions& o, int64_t ranks) {
  if (o.shares == 0) return;
  RT_CHECK_AS(UsageError, !o.entry().replicas && !o.entry().shards(), "--shares: not with --strategy ", o.strategy.name,
              "; use ddp");
  RT_CHECK_AS(UsageError, !o.sync_bn,
              "--shares and --sync-bn: a rank computes its shares one after another, so that "
              "layers cannot use all of them; leave one out");
  RT_CHECK_AS(UsageError, o.reducer.reduction.name == "sum", "--shares and --gradient-reduction ",
              o.reducer.reduction.name, ": only exact sums are the same for any ranks; use sum");
  RT_CHECK_AS(UsageError, ranks <= o.shares, "--shares ", o.shares, ": fewer than the ", ranks, " ranks");
}

void check_elastic(const ParallelOptions& o) {
  RT_CHECK_AS(UsageError, o.entry().starts_ranks() && !o.entry().shards(), "--elastic: not with --strategy ",
              o.strategy.name, ", whose ranks hold what the others do not have; use ddp");
  RT_CHECK_AS(UsageError, o.transport != "mpi",
              "--elastic: not over --transport mpi, which ends all ranks when one "
              "dies; use shm or tcp");
}

void check_ranks(const ParallelOptions& options, int64_t ranks) {
  if (options.entry().check) options.entry().check(options.strategy.chosen(), ranks);
  const std::string& name = options.transport;
  RT_CHECK_AS(UsageError, ranks == 1 || name == "auto" || !comm::find_transport(name).one_process, "--transport ", name,
              ": between threads of one process, as in bench collectives and dp, but these ranks are processes; use ",
              name == "p2p" ? "ipc, nccl" : "shm, tcp", " or auto");
}

}  // namespace ringtape
