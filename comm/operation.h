#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"
#include "kernels/reduce_op.h"

namespace ringtape::comm {

enum class Collective : uint8_t {
  barrier,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all
};
uint64_t hash_of(std::span<const uint64_t> fields);
std::string_view name_of(Collective kind);
Collective parse_collective(std::string_view name);  // throws UsageError

// A collective operation of the ranks of a group. All ranks must request the same operations in the same order: every
// message carries sequence and fingerprint.
struct Operation {
  Collective kind = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // of broadcast, reduce, gather, scatter
  // elements: of the whole buffer for all_reduce, broadcast and reduce, of one rank's part for the others: of the
  // largest part, if they differ.
  int64_t count = 0;
  uint64_t cuts = 0;       // hash of the parts of reduce_scatter and all_gather; 0: they are equal
  uint64_t sequence = 0;   // 1 for the first of a group
  uint32_t algorithm = 0;  // hash of its name

  size_t bytes() const { return size_t(count) * size_of(dtype); }
  uint64_t fingerprint() const;  // of all but the sequence
  std::string str() const;       // "all_reduce #12 (sum, f32, 1,048,576 elements)"
};

}  // namespace ringtape::comm
