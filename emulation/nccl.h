#pragma once
#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

// The stand-in for libnccl, between threads of one process, without NCCL's own choice of algorithms: an operation is
// done at once when all its ranks have issued it and their streams have come to it. It refuses what NCCL refuses, and
// waits, until the communicator is aborted, for what NCCL waits for.
namespace ringtape::emulation {

enum class NcclKind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, recv };

// What a rank has asked for.
struct NcclCall {
  NcclKind kind;
  const void* from;
  void* to;
  size_t count;  // as the function takes it
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // of send and recv: the peer
  int rank = 0;
  uint64_t group = 0;  // the same for all calls of a group

  size_t bytes() const;
  bool is_message() const { return kind >= NcclKind::send; }
  bool matches(const NcclCall& other) const;  // of another rank, as parts of one collective or message
};

// For tests: the calls since it was asked last, in the order in which they came; and the communicators that are
// neither destroyed nor aborted.
std::vector<NcclCall> take_nccl_calls();
size_t nccl_communicators();

struct NcclFaults {
  // Ranks whose calls differ wait for ever, as they mostly do with NCCL; else they get an asynchronous error.
  bool mismatches_hang = false;
  std::string fails = "";  // the function that fails once: "ncclAllReduce"
  ncclResult_t with = ncclSuccess;
  bool later = false;  // as an asynchronous error of the communicator, after it has been accepted
};
void set_nccl_faults(NcclFaults faults);

// Computes one collective or message: the calls of all its ranks, in the order of the ranks; send before recv. Sums are
// made in that order, those of 16-bit floats in f32, and avg is the sum divided by the number of ranks.
void run_nccl(const std::vector<NcclCall>& calls);

// Why a call can never work, as to its memory; empty if it can.
std::string nccl_memory_fault(const NcclCall& call, int ranks, int device);

}  // namespace ringtape::emulation
