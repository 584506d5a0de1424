// The stand-in for libnccl: what an operation does to memory.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/dtype.h"
#include "emulation/cudart.h"
#include "emulation/memory.h"
#include "emulation/nccl.h"
#include "emulation/report.h"

namespace ringtape::emulation {
namespace {

struct Range {
  const char* data = nullptr;
  size_t bytes = 0;
  bool overlaps(const Range& o) const { return bytes && o.bytes && data < o.data + o.bytes && o.data < data + bytes; }
};

struct Ranges {
  Range read, written;
  size_t in_place;  // where in the longer one the shorter one may begin
};

// What a rank reads and writes.
Ranges ranges_of(const NcclCall& c, int ranks) {
  const auto* const from = static_cast<const char*>(c.from);
  const auto* const to = static_cast<const char*>(c.to);
  const size_t one = c.bytes(), all = one * size_t(ranks), own = one * size_t(c.rank);
  const Range read{from, one}, written{to, one}, none;
  const bool root = c.rank == c.root;
  switch (c.kind) {
    case NcclKind::all_reduce: return {read, written, 0};
    case NcclKind::reduce_scatter: return {{from, all}, written, own};
    case NcclKind::all_gather: return {read, {to, all}, own};
    case NcclKind::broadcast: return {root ? read : none, written, 0};
    case NcclKind::reduce: return {read, root ? written : none, 0};
    case NcclKind::send: return {read, none, 0};
    case NcclKind::recv: return {none, written, 0};
  }
  return {none, none, 0};
}

void move(char* to, const char* from, size_t bytes) {
  if (to == from) return;
  std::memcpy(to, from, bytes);
  mark_copied(to, from, bytes);
}

template <class T> T combined(const std::vector<NcclCall>& calls, size_t i) {
  using C = compute_t<T>;
  const ncclRedOp_t op = calls[0].op;
  const auto value = [&](const NcclCall& c) { return C(static_cast<const T*>(c.from)[i]); };
  C y = value(calls[0]);
  for (size_t r = 1; r < calls.size(); ++r) {
    const C x = value(calls[r]);
    if (op == ncclMax) y = std::max(y, x);
    else if (op == ncclMin) y = std::min(y, x);
    else if (op == ncclProd) y = C(y * x);
    else y = C(y + x);
  }
  return T(op == ncclAvg ? C(y / C(calls.size())) : y);
}

// y[i] of each rank in [first, last) = the ranks' x[i + offset] combined.
template <class T> void reduce(const std::vector<NcclCall>& calls, size_t first, size_t last, size_t offset) {
  for (size_t i = 0; i < calls[0].count; ++i) {
    const T y = combined<T>(calls, i + offset);
    for (size_t r = first; r < last; ++r) static_cast<T*>(calls[r].to)[i] = y;
  }
  for (size_t r = first; r < last; ++r) mark_initialised(calls[r].to, calls[r].bytes());
}

void reduce(const std::vector<NcclCall>& calls, size_t first, size_t last, size_t offset = 0) {
  switch (calls[0].type) {
    case ncclUint8: return reduce<uint8_t>(calls, first, last, offset);
    case ncclInt32: return reduce<int32_t>(calls, first, last, offset);
    case ncclInt64: return reduce<int64_t>(calls, first, last, offset);
    case ncclFloat16: return reduce<f16>(calls, first, last, offset);
    case ncclBfloat16: return reduce<bf16>(calls, first, last, offset);
    case ncclFloat32: return reduce<float>(calls, first, last, offset);
    case ncclFloat64: return reduce<double>(calls, first, last, offset);
    default: RT_CHECK(false, "the emulated NCCL has no sums of type ", int(calls[0].type));
  }
}

}  // namespace

size_t NcclCall::bytes() const {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return count * sizes[type];
}

bool NcclCall::matches(const NcclCall& o) const {
  if (is_message()) return bytes() == o.bytes();
  return kind == o.kind && count == o.count && type == o.type && op == o.op && root == o.root;
}

std::string nccl_memory_fault(const NcclCall& call, int ranks, int device) {
  const Ranges own = ranges_of(call, ranks);
  for (const Range* range : {&own.read, &own.written}) {
    if (range->bytes == 0) continue;
    const char* const name = range == &own.read ? "sendbuff" : "recvbuff";
    if (!range->data) return concat(name, " is NULL");
    if (!owned_by(range->data, range->bytes, device))
      return concat(name, ": ", range->bytes, " bytes are not in one buffer of cuda:", device);
  }
  const bool longer_read = own.read.bytes > own.written.bytes;
  const Range &longer = longer_read ? own.read : own.written, &shorter = longer_read ? own.written : own.read;
  if (own.read.overlaps(own.written) && shorter.data != longer.data + own.in_place)
    return "sendbuff and recvbuff overlap";
  return "";
}

void run_nccl(const std::vector<NcclCall>& calls) {
  const NcclCall& first = calls[0];
  const size_t n = calls.size(), bytes = first.bytes();
  const bool sums =
      first.kind == NcclKind::all_reduce || first.kind == NcclKind::reduce_scatter || first.kind == NcclKind::reduce;
  for (const NcclCall& c : calls) {
    const Ranges own = ranges_of(c, int(n));
    for (const Range& range : {own.read, own.written})
      if (range.bytes && !inside_live(range.data, range.bytes))
        return report("not-allocated", {},
                      concat("NCCL, rank ", c.rank, ": ", range.bytes, " bytes from ", describe(range.data)));
    if (sums && !initialised(own.read.data, own.read.bytes))
      report("uninitialised", {},
             concat("NCCL, rank ", c.rank, ": ", own.read.bytes, " bytes from ", describe(own.read.data)));
  }
  const auto to = [](const NcclCall& c) { return static_cast<char*>(c.to); };
  const auto from = [](const NcclCall& c) { return static_cast<const char*>(c.from); };
  const auto root = size_t(first.root);
  switch (first.kind) {
    case NcclKind::all_reduce: return reduce(calls, 0, n);
    case NcclKind::reduce: return reduce(calls, root, root + 1);
    case NcclKind::reduce_scatter:
      for (size_t r = 0; r < n; ++r) reduce(calls, r, r + 1, r * first.count);
      return;
    case NcclKind::all_gather:
      for (const NcclCall& c : calls)
        for (size_t r = 0; r < n; ++r) move(to(c) + r * bytes, from(calls[r]), bytes);
      return;
    case NcclKind::broadcast:
      for (const NcclCall& c : calls) move(to(c), from(calls[root]), bytes);
      return;
    case NcclKind::send:
    case NcclKind::recv: return move(to(calls[1]), from(calls[0]), bytes);
  }
}

}  // namespace ringtape::emulation
