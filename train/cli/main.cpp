#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "comm/job/rendezvous.h"
#include "core/check.h"
#include "core/env.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/printable.h"
#include "train/cli/command.h"
#include "train/cli/standard_streams.h"
#include "train/run/stop.h"

// Exit codes: 0 done, 1 failed (also if what was printed is lost), 2 wrong usage, 3 out of memory, 75 stopped by a
// signal (resume from a checkpoint or start again); `launch` returns the code of its first rank that failed. An error
// is one line on standard error; after a collective that did not finish in time, a table of its ranks follows.
static int failed(int code, std::string& cause, const std::string& message, bool has_table = false) {
  cause = ringtape::printable(message, has_table ? "\n" : " ");
  std::fflush(stdout);
  std::fprintf(stderr, "ringtape: error: %s\n", cause.c_str());
  return code;
}

int main(int argc, char** argv) {
  using namespace ringtape;
  cli::open_standard_streams();
  raise_descriptor_limit();
  // Writing to a closed pipe, or beyond the limit of a file's size, returns an error and does not end the process.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  const std::vector<cli::Command> commands = {cli::train_command(),         cli::pretrain_command(),
                                              cli::evaluate_command(),      cli::predict_command(),
                                              cli::embed_command(),         cli::export_command(),
                                              cli::compare_command(),       cli::view_command(),
                                              cli::launch_command(),
                                              cli::bench_step_command(),    cli::bench_collectives_command(),
                                              cli::data_info_command(),     cli::data_verify_command(),
                                              cli::data_download_command(), cli::doctor_command(),
                                              cli::list_command()};
  const cli::Command* command = nullptr;
  std::string cause;
  int code;
  try {
    raise_stack_limit();
    for (const auto& [name, meant] : env::misspelt())
      log_warn("the environment has ", name, ", which means nothing here; did you mean ", meant, "?");
    code = cli::dispatch_command(commands, argc, argv, command);
    if (const std::string lost = cli::lost_output(); !lost.empty() && code == 0) return failed(1, cause, lost);
    return code;
  } catch (const UsageError& e) {
    code = failed(2, cause, e.what());
  } catch (const OutOfMemory& e) {
    code = failed(3, cause, e.what());
  } catch (const CommError& e) {
    code = failed(1, cause, e.what(), true);
  } catch (const std::bad_alloc&) {
    code = failed(3, cause, "out of memory");
  } catch (const std::exception& e) {
    code = failed(1, cause, e.what());
  }
  if (command && command->meets) {
    stop_as_always();
    comm::excuse_from_job(cause);
  }
  return code;
}
