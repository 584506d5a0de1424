#pragma once
#include "comm/transport.h"

namespace ringtape::comm {

// For a transport whose deadline has passed: raises the failure with a table of what every rank is doing, and throws
// it. Takes up to a few seconds: ranks have one second to answer, and if another rank is already reporting, this one
// waits for its report.
[[noreturn]] void timed_out(Transport& transport);

bool is_timeout(const std::string& cause);  // whether it is of timed_out()

// Appends Activity::history() of this process to a file; to standard error if the path is empty.
void dump_activity(const std::string& path);

// Does this whenever the process gets SIGQUIT. Call once per process.
void dump_activity_on_sigquit(const std::string& path);

}  // namespace ringtape::comm
