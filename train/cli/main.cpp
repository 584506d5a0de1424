#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "core/check.h"
#include "train/cli/command.h"

// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 out of memory, 75 stopped by a signal with a
// checkpoint to go on from; `launch` ends as the first of its ranks that failed. An error is one line on standard error;
// a collective that did not end in time adds a table of its ranks.
static int failed(int code, std::string message, bool has_table = false) {
  if (!has_table) std::replace(message.begin(), message.end(), '\n', ' ');
  std::fflush(stdout);
  std::fprintf(stderr, "ringtape: error: %s\n", message.c_str());
  return code;
}

int main(int argc, char** argv) {
  using namespace ringtape;
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of that write, not the end of the training
  try {
    const std::vector<cli::Command> commands = {cli::train_command(), cli::pretrain_command(), cli::evaluate_command(), cli::embed_command(),
                                                cli::export_command(), cli::compare_command(), cli::data_info_command(), cli::data_verify_command(),
                                                cli::data_download_command(), cli::launch_command(),
                                                cli::bench_step_command(), cli::bench_collectives_command(),
                                                cli::doctor_command(), cli::list_command()};
    return cli::dispatch_command(commands, argc, argv);
  } catch (const UsageError& e) {
    return failed(2, e.what());
  } catch (const OutOfMemory& e) {
    return failed(3, e.what());
  } catch (const CommError& e) {
    return failed(1, e.what(), true);
  } catch (const std::bad_alloc&) {
    return failed(3, "out of memory");
  } catch (const std::exception& e) {
    return failed(1, e.what());
  }
}
