#include <cuda_runtime_api.h>

#include <vector>

#include "comm/algorithm.h"
#include "comm/algorithm/parts.h"
#include "comm/transport/cuda/nccl_calls.h"
#include "comm/transport/gpu.h"

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

namespace {

constexpr ncclDataType_t nccl_type(DType dtype) {
  constexpr ncclDataType_t types[] = {ncclUint8,   ncclUint8,    ncclInt32,   ncclInt64,
                                      ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64};
  return types[size_t(dtype)];
}
constexpr ncclRedOp_t nccl_op(ReduceOp op) {
  constexpr ncclRedOp_t ops[] = {ncclSum, ncclAvg, ncclMax, ncclMin, ncclProd};
  return ops[size_t(op)];
}

struct Call {
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  ncclComm_t comm;
  cudaStream_t stream;
};

template <class F> void collective(Transport& transport, F&& f) {
  auto* const nccl = dynamic_cast<NcclTransport*>(&transport);
  RT_CHECK_AS(CommError, nccl, "the algorithm 'nccl' runs over the transport 'nccl', not over ", transport.name());
  const Operation& o = transport.operation();
  nccl->call([&](ncclComm_t comm, cudaStream_t stream) {
    f(Call{size_t(o.count), nccl_type(o.dtype), nccl_op(o.op), o.root, comm, stream});
  });
}

void all_reduce(Transport& t, const void* x, void* y) {
  collective(t, [&](const Call& c) { RT_GPU_CHECK(ncclAllReduce(x, y, c.count, c.type, c.op, c.comm, c.stream)); });
}
// For parts of different sizes, a group of one call a part.
template <class F> void each_part(Transport& t, F&& f) {
  collective(t, [&](const Call& c) {
    in_group([&] {
      for (int r = 0; r < t.size(); ++r)
        if (const Part part = t.part(r); part.size() > 0) f(c, r, part);
    });
  });
}
void reduce_scatter(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  if (t.operation().cuts == 0)
    return collective(
        t, [&](const Call& c) { RT_GPU_CHECK(ncclReduceScatter(x, y, c.count, c.type, c.op, c.comm, c.stream)); });
  each_part(t, [&](const Call& c, int r, Part part) {
    RT_GPU_CHECK(ncclReduce(at(x, part.begin, width), y, size_t(part.size()), c.type, c.op, r, c.comm, c.stream));
  });
}
void all_gather(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  if (t.operation().cuts == 0)
    return collective(t, [&](const Call& c) { RT_GPU_CHECK(ncclAllGather(x, y, c.count, c.type, c.comm, c.stream)); });
  each_part(t, [&](const Call& c, int r, Part part) {
    RT_GPU_CHECK(ncclBroadcast(x, at(y, part.begin, width), size_t(part.size()), c.type, r, c.comm, c.stream));
  });
}
void broadcast(Transport& t, const void*, void* y) {
  collective(t, [&](const Call& c) { RT_GPU_CHECK(ncclBroadcast(y, y, c.count, c.type, c.root, c.comm, c.stream)); });
}
void reduce(Transport& t, const void* x, void* y) {
  collective(t,
             [&](const Call& c) { RT_GPU_CHECK(ncclReduce(x, y, c.count, c.type, c.op, c.root, c.comm, c.stream)); });
}

// Collectives that NCCL does not have, at least before version 2.28, are one group of messages.
void together(Transport& t, const std::vector<Transfer>& transfers) { t.finish(t.start(transfers)); }

void gather(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  if (t.rank() != op.root) return t.exchange({send_to(op.root, x, op.bytes())});
  const auto place = [&](int r) { return at(y, op.count * r, size_of(op.dtype)); };
  std::vector<Transfer> all;
  for (int r = 0; r < t.size(); ++r)
    if (r != t.rank()) all.push_back(recv_from(r, place(r), op.bytes()));
  together(t, all);
  t.copy(place(t.rank()), x, op.bytes());
}

void scatter(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  if (t.rank() != op.root) return t.exchange({recv_from(op.root, y, op.bytes())});
  const auto place = [&](int r) { return at(x, op.count * r, size_of(op.dtype)); };
  std::vector<Transfer> all;
  for (int r = 0; r < t.size(); ++r)
    if (r != t.rank()) all.push_back(send_to(r, place(r), op.bytes()));
  together(t, all);
  t.copy(y, place(t.rank()), op.bytes());
}

void all_to_all(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype), whole = op.bytes() * size_t(t.size());
  if (x == y && t.size() > 1) {
    void* const copy = t.scratch(whole);
    t.copy(copy, x, whole);
    x = copy;
  }
  std::vector<Transfer> all;
  for (int r = 0; r < t.size(); ++r) {
    if (r == t.rank()) continue;
    all.push_back(send_to(r, at(x, op.count * r, width), op.bytes()));
    all.push_back(recv_from(r, at(y, op.count * r, width), op.bytes()));
  }
  together(t, all);
  t.copy(at(y, op.count * t.rank(), width), at(x, op.count * t.rank(), width), op.bytes());
}

// The host waits too: no rank leaves before all have come.
void barrier(Transport& t, const void*, void*) {
  void* const token = t.scratch(1);
  collective(
      t, [&](const Call& c) { RT_GPU_CHECK(ncclAllReduce(token, token, 1, ncclUint8, ncclMax, c.comm, c.stream)); });
  const auto met = t.reached();
  for (Wait wait(t, (t.rank() + 1) % t.size()); !met->passed();) wait.pause();
}

}  // namespace

const Algorithm nccl = {.name = "nccl",
                        .about = "NCCL's own choice, in one kernel",
                        .all_reduce = all_reduce,
                        .reduce_scatter = reduce_scatter,
                        .all_gather = all_gather,
                        .broadcast = broadcast,
                        .reduce = reduce,
                        .gather = gather,
                        .scatter = scatter,
                        .all_to_all = all_to_all,
                        .barrier = barrier};

}  // namespace ringtape::comm::cuda
