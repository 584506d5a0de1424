#pragma once

// Switches of stacks as function calls without a system call, for x86-64 and Arm (aarch64), unless
// RINGTAPE_FIBERS_UCONTEXT is defined.
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(RINGTAPE_FIBERS_UCONTEXT)
#define RT_FIBERS_ASSEMBLY 1

// Pushes the callee-saved registers on the old stack, and pops those of the new one.
extern "C" void ringtape_fiber_switch(void** save, void* to);

// The stack pointer of a new stack with that upper end (a multiple of 16): the first switch to it calls entry(), which
// has no caller.
void* ringtape_fiber_start(void* end, void (*entry)());
#endif
