#include "train/run/rank_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "comm/base/fd.h"
#include "core/env_rank.h"
#include "core/limits.h"
#include "core/log.h"

namespace ringtape {

// The launcher appends to the same file; one write keeps the line whole.
void rank_log(const std::string& line) {
  if (log_level() >= LogLevel::debug) return log(LogLevel::debug, line);
  if (env::rank_log().empty()) return;
  static const comm::Fd file(::open(env::rank_log().c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  const std::string whole = line + "\n";
  static std::atomic<bool> told{false};
  if (::write(file.get(), whole.data(), whole.size()) != ssize_t(whole.size()) && !told.exchange(true))
    log_warn(env::rank_log(), ": cannot write: ", reason(errno));
}

}  // namespace ringtape
