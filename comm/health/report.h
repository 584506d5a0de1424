#pragma once
#include "comm/transport.h"

namespace ringtape::comm {

// For a transport whose deadline has passed: raises the failure with a table of what every rank is at, and throws it.
// Takes up to some seconds: ranks have one to answer, and if another rank reports already, its report is waited for.
[[noreturn]] void timed_out(Transport& transport);

// Appends Activity::history() of this process to a file; to standard error if the path is empty.
void dump_activity(const std::string& path);

// The same whenever the process gets SIGQUIT. Once a process.
void dump_activity_on_sigquit(const std::string& path);

}  // namespace ringtape::comm
