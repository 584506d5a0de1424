#include <algorithm>
#include <cstring>

#include "comm/base/host_name.h"
#include "comm/launch/attempt.h"
#include "core/text.h"

namespace ringtape::comm {

static std::string end_text(int code) {
  if (code <= 128) return concat("exit code ", code);
  const char* const name = ::sigabbrev_np(code - 128);
  return concat("killed by signal ", code - 128, name ? concat(" (SIG", name, ")") : "");
}

static std::string tenths(double seconds) {
  const auto tenths = int64_t(seconds * 10 + 0.5);
  return concat(tenths / 10, ".", tenths % 10, " s");
}

std::string Attempt::end_of(const Rank& r) const {
  return concat("rank ", r.rank, " (pid ", r.pid, ") ", r.code <= 128 ? "ended with " : "was ", end_text(r.code),
                " after ", tenths(r.seconds));
}

// What the control group says of a rank that got SIGKILL; empty: nothing. In a container nobody sees the kernel log.
std::string Attempt::out_of_memory() const {
  const int64_t killed = launch_.groups.oom_kills().value_or(0) - oom_kills_.value_or(0);
  if (killed <= 0) return "";
  const auto limit = launch_.groups.memory();
  return concat("memory ran out: the kernel has killed ", killed, killed == 1 ? " process" : " processes",
                " of this control group for that", limit ? concat("; its limit is ", *limit >> 20, " MiB") : "");
}

std::string Attempt::report() const {
  if (!first_)
    return concat("ringtape: error: the job did not end within the ", launch_.timeout.count(), " s of --timeout\n");
  const Rank& f = *first_;
  if (code_ == kPreempted) return concat("ringtape: stopped: exit code 75, first on rank ", f.rank, "\n");
  std::string out =
      concat("ringtape: error: rank ", f.rank, " of ", launch_.ranks(), " was the first to fail: ", end_text(code_),
             " after ", tenths(f.seconds), " (pid ", f.pid, " on ", host_name(), ")\n");
  const std::string memory = out_of_memory();
  if (code_ == 128 + SIGKILL && !memory.empty()) out += concat("  ", memory, "\n");
  else if (code_ == 128 + SIGKILL && !stopped_)
    out += "  another process killed it, or the kernel if memory ran out; the kernel log (dmesg) shows this\n";
  if (!f.output->last_lines().empty()) out += "  its last lines:\n";
  for (const std::string& line : f.output->last_lines()) out += concat("    ", line, "\n");
  std::string others;
  for (const Rank& r : ranks_)
    if (&r != first_)
      others += concat(others.empty() ? "" : ", ", r.rank, " ", r.code == 0 ? "done" : end_text(r.code));
  if (!others.empty()) out += concat("  the other ranks here: ", others, "\n");
  if (!f.log.empty()) out += concat("  its log: ", f.log, "\n");
  return out;
}

}  // namespace ringtape::comm
