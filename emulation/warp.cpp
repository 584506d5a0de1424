#include "emulation/warp.h"

#include <algorithm>
#include <bit>

#include "core/text.h"
#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/matrix.h"
#include "emulation/traffic.h"
#include "emulation/wgmma.h"

namespace ringtape::emulation {
namespace {

constexpr uint64_t kUndefined = 0x7ff7dead7fbfdeadull;  // NaN as a float and as a double

std::string hex(uint32_t x) {
  std::string s;
  for (int shift = 28; shift >= 0; shift -= 4) s += "0123456789abcdef"[x >> shift & 15];
  return s;
}

const char* name_of(WarpOperation operation) {
  switch (operation) {
    case WarpOperation::synchronize: return "__syncwarp";
    case WarpOperation::shuffle: return "shuffle";
    case WarpOperation::ballot: return "vote";
    case WarpOperation::match: return "match";
    case WarpOperation::load_matrices:
    case WarpOperation::store_matrices:
    case WarpOperation::transpose_matrix:
    case WarpOperation::multiply_matrices: return "matrix instruction";
    case WarpOperation::warpgroup: return "warpgroup instruction";
    default: return "reduction";
  }
}

uint32_t combine(WarpOperation operation, uint32_t a, uint32_t b) {
  switch (operation) {
    case WarpOperation::add_u32: return a + b;
    case WarpOperation::min_u32: return std::min(a, b);
    case WarpOperation::max_u32: return std::max(a, b);
    case WarpOperation::min_i32: return uint32_t(std::min(int32_t(a), int32_t(b)));
    case WarpOperation::max_i32: return uint32_t(std::max(int32_t(a), int32_t(b)));
    case WarpOperation::bit_and: return a & b;
    case WarpOperation::bit_or: return a | b;
    default: return a ^ b;
  }
}

template <class F> void for_each_lane(uint32_t lanes, F&& f) {
  for (; lanes; lanes &= lanes - 1) f(std::countr_zero(lanes));
}

// Sets the results of `lanes`, for the threads from `warp` on. All results are computed before any lane continues.
void give_results(Thread* warp, uint32_t lanes) {
  const WarpOperation operation = warp[std::countr_zero(lanes)].operation;
  switch (operation) {
    case WarpOperation::synchronize: return;
    case WarpOperation::shuffle:
      for_each_lane(lanes, [&](int i) {
        Thread& t = warp[i];
        t.undefined = !(lanes >> t.source & 1);
        t.result = t.undefined ? kUndefined : warp[t.source].value;
      });
      return;
    case WarpOperation::ballot: {
      uint32_t votes = 0;
      for_each_lane(lanes, [&](int i) { votes |= uint32_t(warp[i].value != 0) << i; });
      for_each_lane(lanes, [&](int i) { warp[i].result = votes; });
      return;
    }
    case WarpOperation::load_matrices:
    case WarpOperation::store_matrices:
    case WarpOperation::transpose_matrix:
    case WarpOperation::multiply_matrices: return execute_matrix_operation(operation, warp);
    case WarpOperation::warpgroup: return execute_warpgroup(warp);
    case WarpOperation::match:
      for_each_lane(lanes, [&](int i) {
        warp[i].result = 0;
        for_each_lane(lanes, [&](int k) { warp[i].result |= uint64_t(warp[k].value == warp[i].value) << k; });
      });
      return;
    default: {
      uint32_t total = uint32_t(warp[std::countr_zero(lanes)].value);
      for_each_lane(lanes & (lanes - 1), [&](int i) { total = combine(operation, total, uint32_t(warp[i].value)); });
      for_each_lane(lanes, [&](int i) { warp[i].result = total; });
    }
  }
}

std::string waits(int lane, const Thread& t) {
  return concat("lane ", lane, " is in a ", name_of(t.operation), " of mask ", hex(t.mask));
}

}  // namespace

bool complete_warp_operation(int thread) {
  const int first = thread / 32 * 32;
  Thread* const warp = &block.threads[size_t(first)];
  const Thread& mine = block.threads[size_t(thread)];
  const uint32_t lanes = mine.mask & block.present[size_t(first) / 32];
  uint32_t& waiting = block.waiting[size_t(first) / 32];
  if (lanes & ~waiting) return false;
  for_each_lane(lanes, [&](int i) {
    if (warp[i].operation == mine.operation && warp[i].mask == mine.mask && warp[i].place == mine.place) return;
    report("warp-mismatch", mine.place, waits(thread - first, mine), warp[i].place, "while " + waits(i, warp[i]));
    abandon();
  });
  if (mine.operation >= WarpOperation::load_matrices && ~lanes) {
    report("warp-mask", mine.place,
           concat("a matrix instruction needs 32 lanes, of which ", std::popcount(~lanes), " have returned"));
    abandon();
  }
  give_results(warp, lanes);
  waiting &= ~lanes;
  for_each_lane(lanes, [&](int i) { make_ready(first + i); });
  if (traffic && mine.operation == WarpOperation::shuffle) ++traffic->shuffles;
  if (checker && mine.operation == WarpOperation::synchronize) checker->warp_barrier(first, lanes);
  return true;
}

int lane() { return block.current % 32; }

uint64_t warp_operation(WarpOperation operation, uint32_t mask, uint64_t value, int source, Place place) {
  const HostCode host;
  const int me = block.current;
  Thread& t = block.threads[size_t(me)];
  if (!(mask >> (me % 32) & 1)) {
    report("warp-mask", place,
           concat("lane ", me % 32, " is in a ", name_of(operation), " whose mask ", hex(mask), " does not name it"));
    abandon();
  }
  t.operation = operation;
  t.mask = mask;
  t.value = value;
  t.source = uint8_t(source);
  t.undefined = false;
  t.place = place;
  t.state = ThreadState::in_warp_operation;
  block.waiting[size_t(me) / 32] |= 1u << (me % 32);
  complete_warp_operation(me);
  suspend();
  if (t.undefined)
    report("shuffle", place,
           concat("lane ", me % 32, " reads lane ", source, ", which takes no part (mask ", hex(mask), "),"));
  return t.result;
}

}  // namespace ringtape::emulation
