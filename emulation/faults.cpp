#include "emulation/faults.h"

#include <signal.h>
#include <ucontext.h>

#include <memory>

#include "core/text.h"
#include "emulation/block.h"

namespace ringtape::emulation {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr size_t kStackBytes = 128 << 10;
struct sigaction before[std::size(kSignals)];

// Handlers run on a separate stack, since the kernel's may be full.
struct SignalStack {
  std::unique_ptr<char[]> memory;
  SignalStack() {
    stack_t now{};
    sigaltstack(nullptr, &now);
    if (!(now.ss_flags & SS_DISABLE) && now.ss_size >= kStackBytes / 4) return;
    memory = std::make_unique<char[]>(kStackBytes);
    stack_t mine{};
    mine.ss_sp = memory.get();
    mine.ss_size = kStackBytes;
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    if (!memory) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
};

const void* instruction_of(void* context) {
  const mcontext_t& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto pc = uintptr_t(registers.gregs[REG_RIP]);
#else
  const auto pc = uintptr_t(registers.pc);  // of Arm
#endif
  return reinterpret_cast<const void*>(pc + 1);  // report() looks up the instruction before a return address
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Fiber* const fiber = block.current >= 0 ? block.threads[size_t(block.current)].fiber : nullptr;
  const bool overflow = fiber && signal != SIGFPE && fiber->overflowed_at(info->si_addr);
  if (fiber && (in_kernel || overflow)) {
    in_kernel = false;
    const Where where(instruction_of(context));
    if (overflow)
      report("stack-overflow", {}, concat("more than ", Fiber::size() / 1024, " KiB of local memory and calls"));
    else if (signal == SIGFPE) report("division-by-zero", where, "integer division by zero");
    else
      report("illegal-address", where,
             concat("access to address ", reinterpret_cast<uintptr_t>(info->si_addr), ", which nothing has"));
    abandon();
  }
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (kSignals[i] == signal) sigaction(signal, &before[i], nullptr);  // the fault repeats with the old handler
}

}  // namespace

FaultHandler::FaultHandler() {
  static thread_local SignalStack stack;
  [[maybe_unused]] static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before[i]);
    return true;
  }();
}

}  // namespace ringtape::emulation
