#include "emulation/shadow.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "core/text.h"
#include "emulation/memory.h"
#include "emulation/report.h"

namespace ringtape::emulation {
namespace {

constexpr uint8_t kNobodys = 0x00, kReserved = 0x01, kFreed = 0x02, kInFlight = 0x03,
                  kBeingRead = 0x04;  // states of words without live bytes, or in asynchronous use
constexpr uint32_t kLastEpoch = 0xF0000000u;
constexpr size_t kPage = 4096, kAsyncUnit = 16;
constexpr size_t kMarkedAtMost = size_t{64}
                                 << 20;  // per buffer: beyond this, memory that is not live counts as unallocated

template <class T> T* lay_out(size_t count) {
  void* const p =
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(p);
}

// Returns the whole pages of [first, last) to the system; they read as zero afterwards.
template <class T> void drop(T* first, T* last) {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(first) + kPage - 1) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(last) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// The program's constants and variables.
bool is_static(const void* p) {
  static const auto ranges = [] {
    auto& all = *new std::vector<std::pair<uintptr_t, uintptr_t>>;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
            const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            static_cast<std::vector<std::pair<uintptr_t, uintptr_t>>*>(data)->push_back(
                {begin, begin + info->dlpi_phdr[i].p_memsz});
          }
          return 0;
        },
        &all);
    return &all;
  }();
  const auto a = reinterpret_cast<uintptr_t>(p);
  return std::any_of(ranges->begin(), ranges->end(), [a](const auto& r) { return a >= r.first && a < r.second; });
}

const char* text_of(AccessKind kind) {
  constexpr const char* texts[] = {"read", "write", "atomic operation"};
  return texts[size_t(kind)];
}

std::string memory_text(const void* p) { return is_shared(p) ? describe_shared(p) : describe(p); }

}  // namespace

void Shadow::reserve() {
  std::call_once(reserved_, [this] {
    base_ = arena().base;
    readers_ = lay_out<uint8_t>(kSharedBytes / kAsyncUnit);
    states_ = lay_out<uint8_t>(kWords), cells_ = lay_out<Cell>(kWords), byte_cells_ = lay_out<Cell>(kArenaBytes);
  });
}

void Shadow::access(const void* p, size_t bytes, AccessKind kind, const void* pc) {
  const size_t offset = size_t(static_cast<const char*>(p) - base_);
  if (offset >= kArenaBytes || bytes > kArenaBytes - offset) return foreign(p, bytes, kind, pc);
  for (size_t at = offset; at < offset + bytes;) {
    const size_t word = at / 4, end = std::min(offset + bytes, word * 4 + 4);
    access_word(word, ((1u << (end - at)) - 1) << (at % 4), kind, pc);
    at = end;
  }
}

void Shadow::access_word(size_t word, uint32_t bytes, AccessKind kind, const void* pc) {
  if (!usable(word, bytes, kind, pc)) return;
  if (bytes == 0xF && !cells_[word].split()) return access_cell(cells_[word], address(word), kind, pc);
  if (!cells_[word].split()) split(word);
  Cell* const cells = byte_cells_ + word * 4;
  for (size_t i = 0; i < 4; ++i)
    if (bytes >> i & 1) access_cell(cells[i], address(word) + i, kind, pc);
  if (bytes == 0xF && kind == AccessKind::write)
    cells_[word] = {order_.now(kind, pc), {}};  // the bytes share one history again
}

void Shadow::refuse(size_t word, uint32_t bytes, AccessKind kind, const void* pc) {
  const HostCode host;
  const uint8_t state = states_[word];
  const char* const what = state == kReserved    ? "use-before-allocation"
                           : state == kFreed     ? "use-after-free"
                           : state == kInFlight  ? "in-flight"
                           : state == kBeingRead ? "source-in-use"
                                                 : "out-of-bounds";
  report(what, pc,
         concat(text_of(kind), " of ", memory_text(address(word) + std::countr_zero(bytes & ~(uint32_t{state} >> 4)))));
  abandon();
}

// Whether what a bulk copy has written there is known to have come.
bool Shadow::settled(size_t word) {
  const auto me = std::find_if(landings_.begin(), landings_.end(), [word](const Landing& l) {
    return !l.settled && word >= l.first && word < l.first + l.words;
  });
  if (me == landings_.end() || me->phase == 0 || phases_known(block.current, me->barrier) < me->phase) return false;
  std::memset(states_ + me->first, 0xFF, me->words);
  return me->settled = true;
}

// Whether the bytes may be accessed at all; reports it if not.
bool Shadow::usable(size_t word, uint32_t bytes, AccessKind kind, const void* pc) {
  uint8_t& state = states_[word];
  if (state == kInFlight) settled(word);
  if (state == kBeingRead && kind == AccessKind::read) return true;
  if (bytes & ~(uint32_t{state} >> 4)) refuse(word, bytes, kind, pc);
  if (kind != AccessKind::write && (bytes & ~uint32_t{state})) {
    const HostCode host;
    const char* const p = address(word) + std::countr_zero(bytes & ~uint32_t{state});
    if (!reported_again("uninitialised", pc))
      report("uninitialised", pc, concat(text_of(kind), " of what nobody has written: ", memory_text(p)));
  }
  state |= uint8_t(bytes);
  return true;
}

void Shadow::split(size_t word) {
  std::fill_n(byte_cells_ + word * 4, 4, cells_[word]);
  cells_[word].write.who |= Access::kSplit;
}

void Shadow::access_cell(Cell& c, const char* p, AccessKind kind, const void* pc) {
  const uint32_t oldest = is_shared(p) ? order_.block_epoch() : order_.grid_epoch();
  const bool atomic = kind == AccessKind::atomic;
  const Access me = order_.now(kind, pc);
  if (!(atomic && c.write.atomic()) && !order_.ordered(c.write, oldest)) race(p, kind, pc, c.write, true);
  if (kind == AccessKind::read) {
    if (c.reads[1].atomic() && !order_.ordered(c.reads[1], oldest)) race(p, kind, pc, c.reads[1], true);
    return remember_read(c, me, oldest);
  }
  for (const Access& r : c.reads)
    if (!(atomic && r.atomic()) && !order_.ordered(r, oldest)) race(p, kind, pc, r, r.atomic());
  Access before;
  if (atomic && c.reads[1].atomic() && !order_.ordered(c.reads[1], oldest)) before = c.reads[1];
  if (atomic && c.write.atomic() && !order_.ordered(c.write, oldest)) before = c.write;
  c = {me, {{}, before}};
}

void Shadow::race(const char* p, AccessKind kind, const void* pc, const Access& other, bool other_writes) {
  const HostCode host;
  if (reported_again("race", pc)) return;
  const char* const what = other.atomic() ? "the atomic operation" : other_writes ? "the write" : "the read";
  const uint64_t number = order_.block_of(other);
  const std::string where = number == block.number ? "the same block" : block_text(number);
  report("race", pc, concat(text_of(kind), " of ", memory_text(p)), other.pc(),
         concat("unordered with ", what, " by ", where, ", ", thread_text(int(other.thread()))));
}

void Shadow::foreign(const void* p, size_t bytes, AccessKind kind, const void* pc) {
  if (on_stack(p)) return;
  const HostCode host;
  if (is_static(p)) return;
  const auto others = std::any_of(block.threads.begin(), block.threads.begin() + block.size, [p](const Thread& t) {
    return t.state != ThreadState::unstarted && t.state != ThreadState::done && t.fiber->owns(p);
  });
  report(others ? "foreign-local" : "host-pointer", pc,
         concat(text_of(kind), " of ", bytes,
                others ? " bytes of another thread's local memory" : " bytes of host memory"));
  abandon();
}

void Shadow::misaligned(const void* p, Where where, const char* access) {
  const HostCode host;
  const bool ours = size_t(static_cast<const char*>(p) - base_) < kArenaBytes;
  report("misaligned", where,
         concat("access (", access, ") that starts at ", ours ? memory_text(p) : "a place in local memory"));
}

void Shadow::begin_grid() {
  reserve();
  if (order_.epoch() > kLastEpoch) {
    drop(cells_, cells_ + kWords);
    drop(byte_cells_, byte_cells_ + kArenaBytes);
    order_.restart();
  }
  order_.begin_grid();
}

void Shadow::atomic(const void* p, size_t bytes, const void* pc) {
  order_.atomic(p);
  access(p, bytes, AccessKind::atomic, pc);
}

void Shadow::cached_read(const void* p, size_t bytes, const void* pc) {
  const size_t first = size_t(static_cast<const char*>(p) - base_);
  if (first >= kDeviceBytes) return;  // the read itself is checked, too
  for (size_t at = first; at < first + bytes; ++at) {
    const Cell& word = cells_[at / 4];
    const Access& write = word.split() ? byte_cells_[at].write : word.write;
    if (write.epoch < order_.grid_epoch()) continue;
    if (!reported_again("cached-read", pc))
      report("cached-read", pc, concat("__ldg of ", memory_text(p)), write.pc(), "which the same grid writes");
    return;
  }
}

void Shadow::access(const void* p, size_t bytes, bool writes, const void* pc) {
  access(p, bytes, writes ? AccessKind::write : AccessKind::read, pc);
}

void Shadow::begin_copy(const void* to, size_t bytes, const void* pc) {
  access(to, bytes, true, pc);
  std::memset(states_ + size_t(static_cast<const char*>(to) - base_) / 4, kInFlight, bytes / 4);
}

void Shadow::end_copy(const void* to, size_t bytes, bool waited, const void* pc) {
  std::memset(states_ + size_t(static_cast<const char*>(to) - base_) / 4, 0xFF, bytes / 4);
  if (waited) access(to, bytes, true, pc);
}

// In shared memory, bytes are 16 or more. What lies there has to be known, and fenced by its writers.
void Shadow::begin_async_read(const void* p, size_t bytes, const void* pc) {
  const size_t offset = size_t(static_cast<const char*>(p) - base_);
  access(p, bytes, false, pc);
  for (size_t word = offset / 4; word < (offset + bytes) / 4; ++word) {
    const Access& write = cells_[word].split() ? byte_cells_[word * 4].write : cells_[word].write;
    if (order_.fenced(write) || reported_again("unfenced", pc)) continue;
    report("unfenced", pc, concat("the asynchronous proxy reads ", memory_text(address(word))), write.pc(),
           "which was stored without a fence_async by its writer, or before one that is not known here,");
  }
  if (!is_shared(p)) return;
  const size_t first = (offset - kDeviceBytes) / kAsyncUnit, end = first + bytes / kAsyncUnit;
  read_until_ = std::max(read_until_, end);
  for (size_t i = first; i < end; ++i)
    if (readers_[i]++ == 0) std::memset(states_ + kDeviceBytes / 4 + i * kAsyncUnit / 4, kBeingRead, kAsyncUnit / 4);
}

void Shadow::end_async_read(const void* p, size_t bytes, const void* pc) {
  if (is_shared(p)) {
    const size_t first = (size_t(static_cast<const char*>(p) - base_) - kDeviceBytes) / kAsyncUnit;
    for (size_t i = first; i < first + bytes / kAsyncUnit; ++i)
      if (--readers_[i] == 0) std::memset(states_ + kDeviceBytes / 4 + i * kAsyncUnit / 4, 0xFF, kAsyncUnit / 4);
  }
  access(p, bytes, false, pc);
}

size_t Shadow::begin_landing(const void* to, size_t bytes, const void* pc) {
  order_.begin_async_write();
  begin_copy(to, bytes, pc);
  landings_.push_back({size_t(static_cast<const char*>(to) - base_) / 4, bytes / 4});
  return landings_.size() - 1;
}

void Shadow::landed(size_t landing, size_t barrier, uint32_t phase) {
  landings_[landing].barrier = barrier, landings_[landing].phase = phase;
}

void Shadow::begin_block(uint64_t number, int threads) {
  order_.begin_block(number, threads);
  landings_.clear();
  std::memset(readers_, 0, read_until_);
  read_until_ = 0;
}

void Shadow::set(const void* p, size_t bytes, Memory state) {
  reserve();
  const size_t first = size_t(static_cast<const char*>(p) - base_) / 4, whole = bytes / 4, rest = bytes % 4;
  if (state == Memory::live) {
    std::memset(states_ + first, 0xF0, whole);
    if (rest) states_[first + whole] = uint8_t(((1u << rest) - 1) << 4);
    return;
  }
  if (bytes > kMarkedAtMost) {
    drop(states_ + first, states_ + first + whole);  // then unallocated: needs no memory
    std::memset(states_ + first, kNobodys, kPage);
    std::memset(states_ + first + whole - kPage, kNobodys, kPage + (rest > 0));
    return;
  }
  const uint8_t value = state == Memory::reserved ? kReserved : state == Memory::freed ? kFreed : kNobodys;
  std::memset(states_ + first, value, whole + (rest > 0));
}

void Shadow::mark_initialised(const void* p, size_t bytes) {
  const size_t first = size_t(static_cast<const char*>(p) - base_), end = first + bytes;
  size_t at = first;
  for (; at < end && at % 4; ++at) states_[at / 4] |= uint8_t(1u << (at % 4));
  for (; at + 4 <= end; at += 4) states_[at / 4] |= 0xF;
  for (; at < end; ++at) states_[at / 4] |= uint8_t(1u << (at % 4));
}

void Shadow::mark_copied(void* to, const void* from, size_t bytes) {
  size_t a = size_t(static_cast<const char*>(to) - base_), b = size_t(static_cast<const char*>(from) - base_);
  const size_t end = a + bytes;
  while (a < end) {
    if (a % 4 == 0 && b % 4 == 0 && a + 4 <= end) {
      states_[a / 4] = uint8_t((states_[a / 4] & 0xF0) | (states_[b / 4] & 0xF));
      a += 4, b += 4;
      continue;
    }
    const uint8_t bit = uint8_t(1u << (a % 4));
    states_[a / 4] = uint8_t((states_[a / 4] & ~bit) | ((states_[b / 4] >> (b % 4) & 1) ? bit : 0));
    ++a, ++b;
  }
}

bool Shadow::initialised(const void* p, size_t bytes) {
  const size_t first = size_t(static_cast<const char*>(p) - base_);
  for (size_t at = first; at < first + bytes; ++at)
    if (!(states_[at / 4] >> (at % 4) & 1)) return false;
  return true;
}

void Shadow::forget(const void* p, size_t bytes) {
  reserve();
  const size_t first = size_t(static_cast<const char*>(p) - base_);
  drop(states_ + first / 4, states_ + (first + bytes) / 4);
  drop(cells_ + first / 4, cells_ + (first + bytes) / 4);
  drop(byte_cells_ + first, byte_cells_ + first + bytes);
}

}  // namespace ringtape::emulation
