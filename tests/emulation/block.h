#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>

#include "tests/emulation/emulation.h"
#include "core/fiber.h"
#include "tests/emulation/kernel.h"
#include "tests/emulation/report.h"
#include "tests/emulation/scheduler.h"
#include "tests/emulation/warp.h"

// The block that runs: its threads and who of them may go on. Seen by the scheduler, the warp operations and the checker.
namespace ringtape::emulation {

enum class ThreadState : uint8_t { unstarted, ready, running, at_barrier, in_warp_operation, done };

struct Thread {
  ThreadState state;
  WarpOperation operation;   // of a warp operation: what, with which lanes, ...
  bool undefined;            // ... whether the lane asked for is absent,
  uint8_t source;            // ... the lane asked for,
  uint32_t mask;
  uint64_t value, result;    // ... what goes in and comes out
  Place place;               // where it waits
  Fiber* fiber;
  uint3 index;
  uint16_t position;         // in the order of the schedule
};

struct Block {
  const Kernel* kernel = nullptr;
  const std::function<void()>* body = nullptr;
  uint64_t number = 0;       // in the grid, x first
  int size = 0;              // threads
  int live = 0;              // not done
  int at_barrier = 0;
  int predicates = 0;        // true ones among those at the barrier
  int barrier_result = 0;
  int current = -1;
  bool abandoned = false;
  std::array<Thread, kMaxThreads> threads;
  std::array<uint32_t, kMaxThreads / 32> waiting;  // by warp: the lanes in a warp operation
  std::array<uint32_t, kMaxThreads / 32> present;  // by warp: the lanes that are not done
};
extern Block block;
extern constinit thread_local bool in_kernel;  // the OS thread is in a kernel's own code now: the checker looks at that alone

// What kernels call begins with one: until it returns, possibly after other threads, the accesses are the emulation's.
struct HostCode {
  const bool before = in_kernel;
  HostCode() { in_kernel = false; }
  ~HostCode() { in_kernel = before; }
};

void make_ready(int thread);
void suspend();                 // the current thread waits; returns when somebody has made it ready
[[noreturn]] void abandon();    // nothing of the grid runs any more
bool complete_warp_operation(int thread);  // of which `thread` is part, if all have come

// "thread (3,0,0)"; "block (0,1,0)" of the grid that runs.
std::string thread_text(int thread);
std::string block_text(uint64_t number);

}  // namespace ringtape::emulation
