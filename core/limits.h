#pragma once
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>

namespace ringtape {

// What the system grants a process, and what to say where that is not enough.

// Descriptors: as many as the system lets this process have, instead of the fewer that it begins with. A process that is to become another
// program gives that back, since not every program can do with so many: a system call or none.
void raise_descriptor_limit();
void restore_descriptor_limit();

// Why so many descriptors cannot be opened beside those that are, with the limit and what is needed; empty: they can.
std::string lack_of_descriptors(int64_t more);

// Whether an error says that the system has none left: to try again changes nothing.
bool is_lack_of_descriptors(int error);

std::string reason(int error);            // an errno's text, for descriptors with the limit
std::string process_reason(int error);    // of a process or thread that cannot be started

// A thread for `what`. Throws Error, with the limit that is in the way.
[[noreturn]] void fail_to_start_thread(const char* what, int error);
template <class Thread = std::thread, class F>
Thread start_thread(const char* what, F&& f) {
  try {
    return Thread(std::forward<F>(f));
  } catch (const std::system_error& e) {
    fail_to_start_thread(what, e.code().value());
  }
}

}  // namespace ringtape
