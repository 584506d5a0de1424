#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>

#include "core/fiber.h"
#include "emulation/emulation.h"
#include "emulation/kernel.h"
#include "emulation/report.h"
#include "emulation/scheduler.h"
#include "emulation/warp.h"

// The running block: its threads, and which of them can continue. Used by the scheduler, the warp operations and the
// checker.
namespace ringtape::emulation {

enum class ThreadState : uint8_t {
  unstarted,
  ready,
  running,
  at_barrier,
  at_named_barrier,
  at_mbarrier,
  in_warp_operation,
  done
};

struct Thread {
  ThreadState state;
  WarpOperation operation;  // of a warp operation: its kind, its lanes (mask), ...
  bool undefined;           // ... whether the source lane is absent,
  uint8_t source;           // ... the source lane,
  uint32_t mask;
  uint64_t value, result;  // ... input and output
  Place place;             // where it waits
  Fiber* fiber;
  uint3 index;
  uint16_t position;  // in the schedule's order
};

struct Block {
  const Kernel* kernel = nullptr;
  const std::function<void()>* body = nullptr;
  uint64_t number = 0;  // in the grid, x first
  int size = 0;         // threads
  int live = 0;         // not finished
  int at_barrier = 0;
  int predicates = 0;  // number of true ones at the barrier
  int barrier_result = 0;
  int current = -1;
  bool abandoned = false;
  const char* stack = nullptr;  // of the current thread: its lowest address, and its size
  size_t stack_bytes = 0;
  std::array<Thread, kMaxThreads> threads;
  std::array<uint32_t, kMaxThreads / 32> waiting;  // by warp: lanes in a warp operation
  std::array<uint32_t, kMaxThreads / 32> present;  // by warp: lanes that are not finished
};
extern Block block;
// Whether the OS thread executes a kernel's own code: the checker ignores all other code. It is read at each access, so
// not through a function of the dynamic linker.
extern constinit thread_local bool in_kernel __attribute__((tls_model("initial-exec")));

// Constructed first in each function that kernels call: until that returns (other threads may run meanwhile), accesses
// belong to the emulation.
struct HostCode {
  const bool before = in_kernel;
  HostCode() { in_kernel = false; }
  ~HostCode() { in_kernel = before; }
};

void make_ready(int thread);
void suspend();                            // the current thread waits until another makes it ready
uint32_t random_below(uint32_t n);         // of the running grid's random schedule
[[noreturn]] void abandon();               // stops the whole grid
bool complete_warp_operation(int thread);  // of `thread`'s warp, if all its lanes have arrived

// "thread (3,0,0)"; "block (0,1,0)" of the running grid.
std::string thread_text(int thread);
std::string block_text(uint64_t number);

}  // namespace ringtape::emulation
