#pragma once
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace ringtape {

// The limits of a process, and error texts for when they are reached.

// Raises the soft limit of file descriptors to the hard limit, but not above 2^20. Call restore_descriptor_limit()
// before exec: some programs cannot handle a high limit. It makes at most one system call.
void raise_descriptor_limit();
void restore_descriptor_limit();

// Raises the soft limit of stacks, of the main thread and of threads that are started from now on, to 8 MiB or the hard
// limit. Throws Error if that is less than 1 MiB, which is too little.
void raise_stack_limit();

// Why `more` descriptors cannot be opened in addition to the open ones, with the limit and the need; empty: they can.
std::string lack_of_descriptors(int64_t more);

// Whether errno `error` says that there are no descriptors left, so that a retry is useless.
bool is_lack_of_descriptors(int error);

std::string reason(int error);          // text of errno `error`; for lack of descriptors, with the limit
std::string process_reason(int error);  // why a process or thread could not be started

// start_thread() starts a thread for `what`. Throws Error that names the limit in the way, OutOfMemory if that
// is the address space.
[[noreturn]] void fail_to_start_thread(const char* what, int error);
template <class Thread = std::thread, class F> Thread start_thread(const char* what, F&& f) {
  try {
    return Thread(std::forward<F>(f));
  } catch (const std::system_error& e) {
    fail_to_start_thread(what, e.code().value());
  }
}

}  // namespace ringtape
