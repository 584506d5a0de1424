// The stand-in for libnccl: the interface, and which calls belong together.
#include "emulation/nccl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "core/text.h"
#include "emulation/cudart.h"

using namespace ringtape;
using namespace ringtape::emulation;

namespace {

// One collective of all ranks of a clique, or one message. Its stream has one operation, once all have issued it.
struct Exchange {
  size_t size;                  // calls
  std::vector<NcclCall> calls;  // so far
  std::vector<Point> begins;    // of the ranks' streams, before it
  std::shared_ptr<CUstream_st> stream;
  bool dead = false;  // a rank has aborted it, or the calls differ: never done
};

// A group of calls on one stream of a rank: the stream waits for `end`, which waits for all parts.
struct Launch {
  std::vector<std::shared_ptr<Exchange>> parts;
  std::shared_ptr<CUstream_st> end;
  bool done() const { return end->completed > 0; }
};

// The ranks with one id.
struct Clique {
  explicit Clique(int size) : ranks(size_t(size)) {}
  std::vector<ncclComm_t> ranks;  // that have come and are not gone
  int joined = 0, finalized = 0;  // an aborted rank counts as finalised
  ncclResult_t error = ncclSuccess;
  // By from, to (both -1: a collective) and number: those that not all ranks have issued.
  std::map<std::tuple<int, int, uint64_t>, std::shared_ptr<Exchange>> open;
};

struct Queued {
  NcclCall call;
  ncclComm_t comm;
  std::shared_ptr<CUstream_st> stream;
};

// The group that a thread has begun.
struct Group {
  int depth = 0;
  uint64_t number = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Queued> calls;
};
thread_local Group group;
thread_local std::string last_error;

struct State {
  std::map<std::string, std::weak_ptr<Clique>> cliques;  // by id
  std::vector<ncclComm_t> comms;
  std::vector<NcclCall> log;
  NcclFaults faults;
  uint64_t ids = 0, groups = 0;
};
State& state() {
  static State& s = *new State;
  return s;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank, device;
  std::map<std::tuple<bool, int, int>, uint64_t> counts{};  // of calls: recv or not, from, to; collectives: -1, -1
  std::vector<Launch> launches{};
  int busy = 0;  // how often it still answers that it is in progress
  bool finalized = false;
  ncclResult_t fault = ncclSuccess;  // what it answers when it has been asked a few times
  int asked = 0;

  bool ready() const { return clique->joined == int(clique->ranks.size()) && busy == 0; }
};

namespace {

ncclResult_t refuse(ncclResult_t status, std::string why) {
  last_error = std::move(why);
  return status;
}

template <class F> ncclResult_t nccl_call(F f, const char* name = __builtin_FUNCTION()) {
  ncclResult_t status = ncclUnhandledCudaError;
  const auto body = [&] {
    NcclFaults& faults = state().faults;
    const bool fails = faults.fails == name && !faults.later;
    if (fails) faults.fails = "";
    status = fails ? refuse(faults.with, "as the test wants") : f();
    if (fails) group.error = faults.with;
    return cudaSuccess;
  };
  last_error = "";
  api_call(body, name);
  return status;
}

bool known(ncclComm_t comm) {
  return std::find(state().comms.begin(), state().comms.end(), comm) != state().comms.end();
}

void put_end(Launch& launch) {
  if (launch.end->issued > 0) return;
  std::vector<Point> parts;
  for (const auto& part : launch.parts) {
    if (part->stream->issued == 0) return;
    parts.push_back({part->stream, 1});
  }
  put(*launch.end, {}, std::move(parts));
  close_stream(*launch.end);
}

std::shared_ptr<Exchange> join(ncclComm& comm, const NcclCall& call, const Point& begin) {
  Clique& clique = *comm.clique;
  int from = -1, to = -1;
  if (call.is_message()) from = call.rank, to = call.root;
  if (call.kind == NcclKind::recv) std::swap(from, to);
  const auto key = std::tuple(from, to, comm.counts[{call.kind == NcclKind::recv, from, to}]++);
  auto& exchange = clique.open[key];
  if (!exchange) {
    exchange = std::make_shared<Exchange>(Exchange{call.is_message() ? 2 : clique.ranks.size(), {}, {}, {}, false});
    exchange->stream = open_stream(comm.device);
  } else if (!call.matches(exchange->calls[0])) {
    exchange->dead = true;
    if (!state().faults.mismatches_hang) clique.error = ncclInvalidUsage;
  }
  exchange->calls.push_back(call);
  exchange->begins.push_back(begin);
  const auto joined = exchange;
  if (exchange->calls.size() < exchange->size) return joined;
  clique.open.erase(key);
  if (joined->dead) return joined;
  std::ranges::sort(joined->calls, {}, [](const NcclCall& c) { return c.is_message() ? int(c.kind) : c.rank; });
  const auto run = [joined = joined.get()] { run_nccl(joined->calls); };
  put(*joined->stream, run, joined->begins);
  close_stream(*joined->stream);
  return joined;
}

// The calls of a group that are for this communicator and stream: all begin together.
void launch(ncclComm& comm, CUstream_st& stream, const std::vector<NcclCall>& calls) {
  std::erase_if(comm.launches, [](const Launch& l) { return l.done(); });
  const Point begin = end_of(stream);
  Launch made;
  made.end = open_stream(comm.device);
  for (const NcclCall& call : calls) made.parts.push_back(join(comm, call, begin));
  put(stream, {}, {{made.end, 1}});
  comm.launches.push_back(std::move(made));
  for (const ncclComm_t other : comm.clique->ranks)
    if (other)
      for (Launch& l : other->launches) put_end(l);
  comm.busy = 2;
}

ncclResult_t launch_group() {
  std::vector<Queued> queued = std::exchange(group.calls, {});
  if (group.error != ncclSuccess) return group.error;
  for (const Queued& q : queued)
    if (!known(q.comm)) return refuse(ncclInvalidArgument, "the communicator was aborted within the group");
  while (!queued.empty()) {
    const Queued first = queued.front();
    const auto same = [&](const Queued& q) { return q.comm == first.comm && q.stream == first.stream; };
    std::vector<NcclCall> calls;
    for (const Queued& q : queued)
      if (same(q)) calls.push_back(q.call);
    std::erase_if(queued, same);
    launch(*first.comm, *first.stream, calls);
  }
  return ncclInProgress;
}

ncclResult_t accept(NcclCall call, ncclComm_t comm, cudaStream_t handle) {
  if (!known(comm)) return refuse(ncclInvalidArgument, "no communicator, or one that is gone");
  const int ranks = int(comm->clique->ranks.size());
  if (comm->finalized) return refuse(ncclInvalidUsage, "the communicator is finalised");
  if (!comm->ready()) return refuse(ncclInvalidArgument, "the communicator is still in progress");
  if (comm->clique->error != ncclSuccess) return refuse(comm->clique->error, "an earlier error");
  const auto stream = stream_of(handle);
  if (!stream || stream->device != comm->device) return refuse(ncclUnhandledCudaError, "a stream of another device");
  if (stream->capture) return refuse(ncclInvalidUsage, "a stream that is recorded, which the emulation does not know");
  if (call.root < 0 || call.root >= ranks) return refuse(ncclInvalidArgument, concat("no rank ", call.root));
  call.rank = comm->rank;
  call.group = group.number;
  state().log.push_back(call);
  if (call.count == 0) return ncclSuccess;  // nothing is done
  if (std::string why = nccl_memory_fault(call, ranks, comm->device); !why.empty())
    return refuse(ncclInvalidArgument, std::move(why));
  group.calls.push_back({call, comm, stream});
  return ncclSuccess;
}

void open_group() {
  if (group.depth++ > 0) return;
  group.error = ncclSuccess;
  group.number = ++state().groups;
}

ncclResult_t issue(NcclCall call, ncclComm_t comm, cudaStream_t stream, const char* name = __builtin_FUNCTION()) {
  const auto accepted = [&] {
    const bool alone = group.depth == 0;
    if (alone) open_group();
    if (const ncclResult_t status = accept(call, comm, stream)) group.error = status;
    else if (NcclFaults& faults = state().faults; faults.fails == name && faults.later)
      comm->fault = faults.with, faults.fails = "";
    if (!alone) return group.error;
    --group.depth;
    return launch_group();
  };
  return nccl_call(accepted, name);
}

// Its streams go on; what it takes part in and what is not done never will be.
void leave(ncclComm_t comm) {
  for (Launch& l : comm->launches) {
    if (l.done()) continue;
    for (const auto& part : l.parts) {
      if (part->stream->completed > 0) continue;
      part->dead = true;
      part->stream->queue.clear();
      close_stream(*part->stream);
    }
    if (l.end->issued == 0) put(*l.end, {});
    else l.end->queue.front().after.clear();
    close_stream(*l.end);
  }
  comm->clique->ranks[size_t(comm->rank)] = nullptr;
  if (!comm->finalized) ++comm->clique->finalized;
  std::erase(state().comms, comm);
  delete comm;
}

ncclResult_t init(ncclComm_t* out, int size, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  const auto found = state().cliques.find({id.internal, sizeof id.internal});
  if (!out || !config || config->size != sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
    return refuse(ncclInvalidArgument, "not the configuration of a communicator that does not block");
  if (found == state().cliques.end() || rank < 0 || rank >= size)
    return refuse(ncclInvalidArgument, concat("rank ", rank, " of ", size, ", or an unknown id"));
  auto clique = found->second.lock();
  if (!clique) found->second = clique = std::make_shared<Clique>(size);
  if (clique->ranks.size() != size_t(size) || clique->ranks[size_t(rank)])
    return refuse(ncclInvalidUsage, concat("rank ", rank, " of ", size, " has come twice, or with another size"));
  for (const ncclComm_t other : clique->ranks)
    if (other && other->device == current_device() && !std::getenv("NCCL_HOSTID"))
      clique->error = ncclInvalidUsage;  // two ranks on one GPU
  *out = clique->ranks[size_t(rank)] = new ncclComm{clique, rank, current_device()};
  ++clique->joined;
  state().comms.push_back(*out);
  return ncclInProgress;
}

ncclResult_t state_of(ncclComm& comm) {
  if (comm.clique->error != ncclSuccess) return comm.clique->error;
  if (comm.busy > 0) return --comm.busy, ncclInProgress;
  if (!comm.ready()) return ncclInProgress;
  if (comm.fault != ncclSuccess && ++comm.asked > 3) return comm.fault;
  if (!comm.finalized) return ncclSuccess;
  for (const Launch& l : comm.launches)
    if (!l.done()) return run_a_little({l.end, 1}), ncclInProgress;
  return comm.clique->finalized < int(comm.clique->ranks.size()) ? ncclInProgress : ncclSuccess;
}

}  // namespace

namespace ringtape::emulation {

std::vector<NcclCall> take_nccl_calls() {
  std::vector<NcclCall> out;
  nccl_call([&] { return std::swap(out, state().log), ncclSuccess; });
  return out;
}
size_t nccl_communicators() {
  size_t out = 0;
  nccl_call([&] { return out = state().comms.size(), ncclSuccess; });
  return out;
}
void set_nccl_faults(NcclFaults faults) {
  nccl_call([&] { return state().faults = std::move(faults), ncclSuccess; });
}

}  // namespace ringtape::emulation

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 0;  // of no library
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t status) {
  switch (status) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return nccl_call([&] {
    *id = {};
    const std::string text = concat("emulated ", ++state().ids);
    std::memcpy(id->internal, text.data(), text.size());
    state().cliques[{id->internal, sizeof id->internal}];
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return nccl_call([&] { return init(comm, nranks, id, rank, config); });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return nccl_call([&] {
    if (!known(comm) || !error) return refuse(ncclInvalidArgument, "no communicator");
    *error = state_of(*comm);
    return ncclSuccess;
  });
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return nccl_call([&] {
    if (!known(comm) || comm->finalized) return refuse(ncclInvalidArgument, "no communicator, or finalised twice");
    if (group.depth > 0) return refuse(ncclInvalidUsage, "a group is open");
    if (!comm->ready()) return refuse(ncclInvalidArgument, "the communicator is still in progress");
    comm->finalized = true;
    ++comm->clique->finalized;
    return ncclInProgress;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return nccl_call([&] {
    if (!known(comm)) return refuse(ncclInvalidArgument, "no communicator");
    if (!comm->finalized || state_of(*comm) != ncclSuccess) return refuse(ncclInvalidUsage, "not finalised before");
    leave(comm);
    return ncclSuccess;
  });
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return nccl_call([&] {
    if (!known(comm)) return refuse(ncclInvalidArgument, "no communicator");
    leave(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupStart() {
  return nccl_call([] { return open_group(), ncclSuccess; });
}
ncclResult_t ncclGroupEnd() {
  return nccl_call([] {
    if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    return --group.depth > 0 ? ncclSuccess : launch_group();
  });
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue({NcclKind::all_reduce, from, to, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return issue({NcclKind::reduce_scatter, from, to, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue({NcclKind::all_gather, from, to, count, type, ncclSum, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue({NcclKind::broadcast, from, to, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return issue({NcclKind::reduce, from, to, count, type, op, root}, comm, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue({NcclKind::send, from, nullptr, count, type, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return issue({NcclKind::recv, nullptr, to, count, type, ncclSum, peer}, comm, stream);
}

}  // extern "C"
