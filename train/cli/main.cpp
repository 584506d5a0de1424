#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "comm/job/rendezvous.h"
#include "core/check.h"
#include "core/limits.h"
#include "core/printable.h"
#include "train/cli/command.h"
#include "train/run/stop.h"

// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 out of memory, 75 stopped by a signal (resume from a checkpoint or
// start again); `launch` returns the code of its first rank that failed. An error is one line on standard error; after
// a collective that did not finish in time, a table of its ranks follows.
static int failed(int code, std::string& cause, const std::string& message, bool has_table = false) {
  cause = ringtape::printable(message, has_table ? "\n" : " ");
  std::fflush(stdout);
  std::fprintf(stderr, "ringtape: error: %s\n", cause.c_str());
  return code;
}

int main(int argc, char** argv) {
  using namespace ringtape;
  raise_descriptor_limit();
  std::signal(SIGPIPE, SIG_IGN);  // writing to a closed pipe returns an error and does not end the training
  const std::vector<cli::Command> commands = {
      cli::train_command(),     cli::pretrain_command(),    cli::evaluate_command(),
      cli::embed_command(),     cli::export_command(),      cli::compare_command(),
      cli::launch_command(),    cli::bench_step_command(),  cli::bench_collectives_command(),
      cli::data_info_command(), cli::data_verify_command(), cli::data_download_command(),
      cli::doctor_command(),    cli::list_command()};
  const cli::Command* command = nullptr;
  std::string cause;
  int code;
  try {
    return cli::dispatch_command(commands, argc, argv, command);
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
