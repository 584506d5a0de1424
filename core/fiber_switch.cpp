#include "core/fiber_switch.h"

#if defined(RT_FIBERS_ASSEMBLY) && defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl ringtape_fiber_switch
.type ringtape_fiber_switch,@function
ringtape_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ringtape_fiber_switch,.-ringtape_fiber_switch
)");

void* ringtape_fiber_start(void* end, void (*entry)()) {
  void** top = static_cast<void**>(end);
  *--top = nullptr;  // return address of entry()
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the registers
  return top;
}
#elif defined(RT_FIBERS_ASSEMBLY)
// x29 and x30 are frame and return address; of v8 to v15 the lower halves are callee-saved. A new stack's first return
// is to ringtape_fiber_first, with the entry in x19.
asm(R"(
.text
.p2align 4
.globl ringtape_fiber_switch
.type ringtape_fiber_switch,%function
ringtape_fiber_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.size ringtape_fiber_switch,.-ringtape_fiber_switch

.p2align 4
.globl ringtape_fiber_first
.hidden ringtape_fiber_first
.type ringtape_fiber_first,%function
ringtape_fiber_first:
  mov x30, xzr
  br x19
.size ringtape_fiber_first,.-ringtape_fiber_first
)");
extern "C" [[gnu::visibility("hidden")]] void ringtape_fiber_first();

void* ringtape_fiber_start(void* end, void (*entry)()) {
  constexpr int kSaved = 20;
  void** const top = static_cast<void**>(end) - kSaved;
  for (int i = 0; i < kSaved; ++i) top[i] = nullptr;
  top[1] = reinterpret_cast<void*>(ringtape_fiber_first);  // x30
  top[2] = reinterpret_cast<void*>(entry);                 // x19
  return top;
}
#endif
