#include "train/cli/cli.h"

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

namespace ringtape::cli {

static int failed(int code, std::string& cause, const std::string& message, bool has_table = false) {
  cause = printable(message, has_table ? "\n" : " ");
  await_reader(true);
  std::fflush(stdout);
  std::fprintf(stderr, "ringtape: error: %s\n", cause.c_str());
  return code;
}

static std::vector<Command> all_commands() {
  return {train_command(),
          pretrain_command(),
          find_lr_command(),
          evaluate_command(),
          predict_command(),
          embed_command(),
          serve_command(),
          export_command(),
          compare_command(),
          runs_command(),
          view_command(),
          launch_command(),
          store_command(),
          bench_step_command(),
          bench_inference_command(),
          bench_tune_command(),
          bench_collectives_command(),
          data_info_command(),
          data_verify_command(),
          data_download_command(),
          doctor_command(),
          list_command()};
}

int main(int argc, char** argv) {
  open_standard_streams();
  raise_descriptor_limit();
  // Writing to a closed pipe, or beyond the limit of a file's size, returns an error and does not end the process.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  std::vector<Command> commands;
  const Command* command = nullptr;
  std::string cause;
  int code;
  try {
    raise_stack_limit();
    commands = all_commands();
    for (const auto& [name, meant] : env::misspelt())
      log_warn("the environment has ", name, ", which means nothing here; did you mean ", meant, "?");
    code = dispatch_command(commands, argc, argv, command);
    if (const std::string lost = lost_output(); !lost.empty() && code == 0) return failed(1, cause, lost);
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

}  // namespace ringtape::cli
