// Memory of the devices cpu:0, cpu:1 ...: one arena each, which keeps freed memory for reuse.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/check.h"
#include "core/memory_fill.h"
#include "core/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define RT_POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define RT_UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define RT_POISON(p, n) (void)0
#define RT_UNPOISON(p, n) (void)0
#endif

namespace ringtape {
namespace {

constexpr size_t kAlignment = 64;              // a cache line and an AVX-512 vector
constexpr size_t kHugePage = size_t{2} << 20;  // first touch of fresh 4 KiB pages costs about 3 us each
constexpr int kSteps = 16, kStepBits = 4;      // sizes of blocks up to each power of two, after the one before
constexpr int kClasses = kSteps * 64;

// Block sizes grow in sixteenths of a power of two, so that at most a seventeenth of a large block is unused.
int size_class(size_t bytes) {
  const size_t units = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment;
  if (units <= kSteps) return int(units) - 1;
  const int octave = std::bit_width(units - 1) - 1;  // units in (2^octave, 2^(octave + 1)]
  return kSteps * (octave - kStepBits) + int((units - 1) >> (octave - kStepBits));
}
size_t block_bytes(int size_class) {
  if (size_class < kSteps) return size_t(size_class + 1) * kAlignment;
  const int shift = size_class / kSteps - 1;
  return (size_t(kSteps + size_class % kSteps + 1) << shift) * kAlignment;
}

class Arena {
 public:
  void* allocate(size_t bytes) {
    void* const data = take(bytes);
    RT_UNPOISON(data, bytes);
    fill_memory(data, bytes);
    return data;
  }

  void deallocate(void* data, size_t bytes) noexcept {
    const int c = size_class(bytes);
    const std::lock_guard lock(mutex_);
    stats_.current -= int64_t(block_bytes(c));
    try {
      free_[size_t(c)].push_back(data);
      RT_POISON(data, block_bytes(c));
    } catch (const std::bad_alloc&) {  // no memory for the free list
      std::free(data);
      stats_.reserved -= int64_t(block_bytes(c));
    }
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.current;
  }
  void count(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.current += bytes;
    stats_.peak = std::max(stats_.peak, stats_.current);
  }
  void release_cached() {
    const std::lock_guard lock(mutex_);
    release_cached_locked();
  }

 private:
  void* take(size_t bytes) {
    const int c = size_class(bytes);
    const size_t block = block_bytes(c);
    const std::lock_guard lock(mutex_);
    void* data = nullptr;
    if (!free_[size_t(c)].empty()) {
      data = free_[size_t(c)].back();
      free_[size_t(c)].pop_back();
    } else {
      data = from_system(block);
      if (!data) {
        release_cached_locked();
        data = from_system(block);
      }
      RT_CHECK_AS(OutOfMemory, data, "out of memory on the cpu: asked for ", bytes, " bytes with ", stats_.current,
                  " held by tensors (peak ", stats_.peak, "); use a smaller batch");
      stats_.reserved += int64_t(block);
      ++stats_.system_allocations;
    }
    stats_.current += int64_t(block);
    stats_.peak = std::max(stats_.peak, stats_.current);
    ++stats_.allocations;
    return data;
  }
  static void* from_system(size_t block) {
    const bool huge = block >= 2 * kHugePage;
    void* data = std::aligned_alloc(huge ? kHugePage : kAlignment,
                                    huge ? (block + kHugePage - 1) / kHugePage * kHugePage : block);
    if (data && huge) madvise(data, block, MADV_HUGEPAGE);
    if (data) RT_POISON(data, block);
    return data;
  }
  void release_cached_locked() {
    for (int c = 0; c < kClasses; ++c) {
      for (void* data : free_[size_t(c)]) {
        RT_UNPOISON(data, block_bytes(c));
        std::free(data);
        stats_.reserved -= int64_t(block_bytes(c));
      }
      free_[size_t(c)].clear();
    }
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  MemoryStats stats_;
};

// Never destroyed: tensors with static lifetime may outlive any order of destruction.
Arena& arena(int index) {
  static auto* arenas = new std::array<Arena, kMaxDevices>;
  return (*arenas)[size_t(index)];
}

}  // namespace

namespace cpu {
void count_memory(int64_t bytes) { arena(0).count(bytes); }

const Runtime runtime{
    .device_count = [] { return kMaxDevices; },
    .unavailable_reason = [] { return std::string(); },
    .describe = [](int) { return std::string(); },
    .allocate = [](size_t bytes, int index) { return arena(index).allocate(bytes); },
    .deallocate = [](void* data, size_t bytes, int index) noexcept { arena(index).deallocate(data, bytes); },
    .copy =
        [](void* to, Device, const void* from, Device, size_t bytes) {
          if (bytes) std::memcpy(to, from, bytes);
        },
    .read = nullptr,
    .host_buffer = nullptr,
    .inbox = nullptr,
    .record = nullptr,
    .zero =
        [](void* data, size_t bytes, int) {
          if (bytes) std::memset(data, 0, bytes);
        },
    .synchronize = [](int) {},
    .stats = [](int index) { return arena(index).stats(); },
    .free_bytes = [](int) { return int64_t(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE); },
    .reset_peak = [](int index) { arena(index).reset_peak(); },
    .release_cached = [](int index) { arena(index).release_cached(); },
};
}  // namespace cpu

}  // namespace ringtape
