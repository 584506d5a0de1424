#include "emulation/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "core/text.h"
#include "emulation/arena.h"
#include "emulation/checker.h"
#include "emulation/report.h"

namespace ringtape::emulation {
namespace {

constexpr size_t kPoisonedAtMost = size_t{64} << 20;  // per buffer, so that a very large unused one needs no memory
constexpr size_t kDropAfter = size_t{16} << 20;       // released bytes after which memory is returned to the system
constexpr size_t kHiddenAhead = size_t{16} << 20;     // (hiding all of the arena would cost memory)
constexpr unsigned char kCanary = 0xA5;

struct Buffer {
  size_t bytes;
  bool live = false, shared = false;  // shared: with other processes
};
using Buffers = std::map<char*, Buffer>;

struct State {
  Buffers buffers;
  char* cursor = nullptr;   // start of the search for a gap: after the newest buffer
  char* highest = nullptr;  // nothing after it has been used
  char* hidden = nullptr;   // everything outside buffers is hidden up to here
  size_t released = 0;      // bytes since the last drop
};
State& state() {
  static State& s = *new State;  // outlives the objects that free memory at exit
  return s;
}

size_t rounded(size_t bytes, size_t to = kRedzone) { return (bytes + to - 1) / to * to; }
char* aligned(char* p, size_t to) { return arena().base + rounded(size_t(p - arena().base), to); }
size_t page() { return size_t(sysconf(_SC_PAGESIZE)); }
char* end_of(const Buffers::value_type& b) { return b.first + rounded(b.second.bytes) + kRedzone; }

bool writes_are_seen() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return checker != nullptr;
#endif
}

// First fit from `from` on, below `limit`.
char* find_gap(const Buffers& buffers, char* from, char* limit, size_t bytes, size_t alignment) {
  auto next = buffers.lower_bound(from);
  if (next != buffers.begin()) from = std::max(from, end_of(*std::prev(next)));
  for (;; ++next) {
    from = aligned(from, alignment);
    char* const end = next == buffers.end() ? limit : next->first - kRedzone;
    if (from <= end && size_t(end - from) >= bytes) return from;
    if (next == buffers.end() || next->first >= limit) return nullptr;
    from = end_of(*next);
  }
}

void drop_released(State& s) {
  const size_t page = emulation::page();
  char* from = arena().device;
  const auto drop = [&](char* end) {
    char* const first = arena().base + (size_t(from - arena().base) + page - 1) / page * page;
    char* const last = arena().base + size_t(end - arena().base) / page * page;
    if (first >= last) return;
    madvise(first, size_t(last - first), MADV_DONTNEED);
    if (checker) checker->forget(first, size_t(last - first));
  };
  for (const auto& b : s.buffers) {
    drop(b.first - kRedzone);
    from = end_of(b);
  }
  drop(s.highest);
  s.released = 0;
}

Buffers::const_iterator holder(const void* p) {
  const Buffers& buffers = state().buffers;
  auto it = buffers.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  return it == buffers.begin() ? buffers.end() : std::prev(it);
}

void verify_redzone(const Buffers::value_type& b) {
  unsigned char* const end = reinterpret_cast<unsigned char*>(b.first) + b.second.bytes;
  const size_t zone = rounded(b.second.bytes) - b.second.bytes + kRedzone;
  const auto* const hit = std::find_if(end, end + zone, [](unsigned char c) { return c != kCanary; });
  if (hit == end + zone) return;
  report("out-of-bounds", {}, concat("something has written to ", describe(hit)));
  std::memset(end, kCanary, zone);
}

}  // namespace

Arena& arena() {
  static Arena a = [] {
    Arena made;
    void* p = mmap(nullptr, kDeviceBytes + kSharedBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    made.base = made.device = static_cast<char*>(p);
    made.shared = made.base + kDeviceBytes;
    hide(made.shared, kSharedBytes);
    return made;
  }();
  return a;
}

void* reserve(size_t bytes, size_t alignment) {
  State& s = state();
  if (bytes > kDeviceBytes) return nullptr;
  const size_t needed = rounded(bytes) + kRedzone;
  char* const first = arena().device + kRedzone;
  char* const limit = arena().device + kDeviceBytes;
  if (!s.cursor) s.cursor = s.hidden = arena().device;
  char* p = find_gap(s.buffers, std::max(first, s.cursor), limit, needed, alignment);
  if (!p) p = find_gap(s.buffers, first, limit, needed, alignment);
  if (!p) return nullptr;
  s.buffers[p] = {bytes};
  s.cursor = p + needed;
  s.highest = std::max(s.highest, s.cursor);
  if (char* const ahead = std::min(limit, s.cursor + kHiddenAhead); ahead > s.hidden + kHiddenAhead / 2) {
    hide(s.hidden, size_t(ahead - s.hidden));
    s.hidden = ahead;
  }
  if (!writes_are_seen()) std::memset(p + bytes, kCanary, needed - bytes);
  if (checker) checker->set(p, bytes, Checker::Memory::reserved);
  return p;
}

// Copies whole pages, including bytes around buffers.
__attribute__((no_sanitize("address"))) void copy_pages(volatile char* to, const volatile char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

// In place: the buffer's pages, with anything else in them, are mapped to a file.
int share(void* buffer) {
  const auto it = state().buffers.find(static_cast<char*>(buffer));
  if (it == state().buffers.end() || !it->second.live || aligned(it->first, page()) != it->first) return -1;
  const size_t bytes = rounded(it->second.bytes, page());
  const int file = memfd_create("emulated GPU", MFD_CLOEXEC);
  if (file < 0) return -1;
  void* const there = ftruncate(file, off_t(bytes)) == 0
                          ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                          : MAP_FAILED;
  if (there != MAP_FAILED) {
    copy_pages(static_cast<char*>(there), static_cast<const char*>(buffer), bytes);
    munmap(there, bytes);
    if (mmap(buffer, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED) {
      state().buffers.at(static_cast<char*>(buffer)).shared = true;
      return file;
    }
  }
  close(file);
  return -1;
}

// The buffer gets whole pages, so that other processes see nothing else of this process.
void* adopt(int file, size_t bytes) {
  bytes = rounded(bytes, page());
  void* const p = reserve(bytes, page());
  if (!p) return nullptr;
  if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    release(p);
    return nullptr;
  }
  Buffer& buffer = state().buffers.at(static_cast<char*>(p));
  buffer.live = buffer.shared = true;
  show(p, bytes);
  if (checker) checker->set(p, bytes, Checker::Memory::live);
  mark_initialised(p, bytes);  // only the other process knows which are
  return p;
}

void disown(void* buffer) {
  mmap(buffer, size_of_buffer(buffer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  release(buffer);
}

void make_live(void* buffer) {
  Buffer& b = state().buffers.at(static_cast<char*>(buffer));
  b.live = true;
  show(buffer, b.bytes);
  std::memset(buffer, kPoison, std::min(b.bytes, kPoisonedAtMost));
  if (checker) checker->set(buffer, b.bytes, Checker::Memory::live);
}

void kill(void* buffer) {
  const auto it = state().buffers.find(static_cast<char*>(buffer));
  if (it == state().buffers.end() || !it->second.live) return;
  if (!writes_are_seen()) verify_redzone(*it);
  it->second.live = false;
  std::memset(buffer, kPoison, std::min(it->second.bytes, kPoisonedAtMost));
  hide(buffer, it->second.bytes);
  if (checker) checker->set(buffer, it->second.bytes, Checker::Memory::freed);
}

void release(void* buffer) {
  State& s = state();
  const auto it = s.buffers.find(static_cast<char*>(buffer));
  if (it == s.buffers.end()) return;
  kill(buffer);
  if (checker) checker->set(buffer, it->second.bytes, Checker::Memory::freed);
  s.released += it->second.bytes + kRedzone;
  s.buffers.erase(it);
  if (s.released > kDropAfter) drop_released(s);
}

bool is_device(const void* p) { return p >= arena().device && p < arena().device + kDeviceBytes; }

bool inside_live(const void* p, size_t bytes) {
  const auto it = holder(p);
  if (it == state().buffers.end() || !it->second.live) return false;
  const size_t offset = size_t(static_cast<const char*>(p) - it->first);
  return offset <= it->second.bytes && bytes <= it->second.bytes - offset;
}

size_t size_of_buffer(const void* buffer) {
  const auto it = state().buffers.find(static_cast<char*>(const_cast<void*>(buffer)));
  return it == state().buffers.end() ? 0 : it->second.bytes;
}

void mark_initialised(const void* p, size_t bytes) {
  if (checker && inside_live(p, bytes)) checker->mark_initialised(p, bytes);
}

void mark_copied(void* to, const void* from, size_t bytes) {
  if (checker && inside_live(to, bytes) && inside_live(from, bytes)) checker->mark_copied(to, from, bytes);
}

bool initialised(const void* p, size_t bytes) {
  return !checker || !inside_live(p, bytes) || checker->initialised(p, bytes);
}

std::optional<Contents> contents(size_t most) {
  size_t total = 0;
  for (const auto& [p, buffer] : state().buffers) {
    if (buffer.live && buffer.shared) return {};
    if (buffer.live) total += buffer.bytes;
    if (total > most) return {};
  }
  Contents out;
  for (const auto& [p, buffer] : state().buffers)
    if (buffer.live) out[p].assign(p, buffer.bytes);
  return out;
}

void restore(const Contents& contents) {
  for (const auto& [p, bytes] : contents) std::memcpy(p, bytes.data(), bytes.size());
}

std::string describe(const void* p) {
  const Buffers& buffers = state().buffers;
  auto it = holder(p);
  const auto next = it == buffers.end() ? buffers.begin() : std::next(it);
  const char* const c = static_cast<const char*>(p);
  const bool inside = it != buffers.end() && c < it->first + it->second.bytes;
  if (!inside && next != buffers.end() && next->first - c <= ptrdiff_t(kRedzone)) {
    const ptrdiff_t past_end =
        it == buffers.end() ? ptrdiff_t(kRedzone) : c - (it->first + ptrdiff_t(it->second.bytes));
    if (next->first - c <= past_end) it = next;  // closer to the start of the next buffer than to the end of this one
  }
  if (it == buffers.end() || c >= end_of(*it)) return "memory of no buffer";
  const char* const life = it->second.live ? "" : ", which is not allocated now,";
  return concat("byte ", c - it->first, " of a buffer of ", it->second.bytes, " bytes", life);
}

void verify_redzones() {
  if (writes_are_seen()) return;
  for (const auto& b : state().buffers)
    if (b.second.live) verify_redzone(b);
}

}  // namespace ringtape::emulation
