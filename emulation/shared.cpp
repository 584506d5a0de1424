#include "emulation/shared.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/text.h"
#include "emulation/arena.h"
#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/memory.h"
#include "emulation/report.h"

namespace ringtape::emulation {
namespace {

constexpr unsigned char kCanary = 0xA5;
constexpr size_t kSharedAlignment = 1024;  // at least a redzone

struct Array {
  const char* name;
  char* data;
  size_t bytes;
};

struct State {
  uint64_t block = 0;
  std::vector<Array> arrays;  // the first is the dynamic one
  size_t static_bytes = 0;
};
State state;

bool writes_are_seen() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return checker != nullptr;
#endif
}

char* lay(const char* name, size_t bytes, Place place) {
  if (state.arrays.size() == size_t{kMaxSharedArrays} || bytes > kMaxSharedBytes)
    trap("more shared memory than a block can have", place);
  char* const data = arena().shared + kSharedAlignment + state.arrays.size() * kSharedDistance;
  state.arrays.push_back({name, data, bytes});
  show(data, bytes);
  std::memset(data, kPoison, bytes);
  if (checker) checker->set(data, bytes, Checker::Memory::live);
  if (!writes_are_seen()) {
    std::memset(data - kRedzone, kCanary, kRedzone);
    std::memset(data + bytes, kCanary, kRedzone);
  }
  return data;
}

void verify(const Array& a) {
  for (char* zone : {a.data - kRedzone, a.data + a.bytes}) {
    const char* const hit =
        std::find_if(zone, zone + kRedzone, [](char c) { return static_cast<unsigned char>(c) != kCanary; });
    if (hit != zone + kRedzone)
      report("out-of-bounds", {}, concat("a thread of the block has written to ", describe_shared(hit)));
  }
}

}  // namespace

void* shared(SharedSlot& slot, Place place) {
  const HostCode host;
  if (slot.block != state.block) {
    slot.block = state.block;
    slot.data = lay(slot.name, slot.bytes, place);
    state.static_bytes += slot.bytes;
    if (state.static_bytes > kMaxStaticSharedBytes) trap("more than 48 KiB in SHARED_ARRAYs: use SHARED_DYN", place);
    if (state.static_bytes + state.arrays[0].bytes > kMaxSharedBytes) trap("more than 227 KiB of shared memory", place);
  }
  return slot.data;
}

void* dynamic_shared() { return state.arrays[0].data; }

void begin_shared(size_t dynamic_bytes) {
  ++state.block;
  state.arrays.clear();
  state.static_bytes = 0;
  lay("dynamic", dynamic_bytes, {});
}

void end_shared() {
  for (const Array& a : state.arrays) {
    if (!writes_are_seen()) verify(a);
    hide(a.data, a.bytes);
    if (checker) checker->set(a.data, a.bytes, Checker::Memory::nobodys);
  }
}

bool is_shared(const void* p) { return p >= arena().shared && p < arena().shared + kSharedBytes; }

std::string describe_shared(const void* p) {
  const size_t index = size_t(static_cast<const char*>(p) - arena().shared) / kSharedDistance;
  if (index >= state.arrays.size()) return "shared memory that no array has";
  const Array& a = state.arrays[index];
  return concat("byte ", static_cast<const char*>(p) - a.data, " of the ", a.bytes, " bytes of shared array ", a.name);
}

}  // namespace ringtape::emulation
