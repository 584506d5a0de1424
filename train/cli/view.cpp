#include <cstdio>
#include <limits>

#include "comm/store/token.h"
#include "core/printable.h"
#include "train/cli/common.h"
#include "train/http/http_server.h"
#include "train/view/server.h"

namespace ringtape::cli {
static int run_view(const Invocation& invocation) {
  ServerOptions options;
  if (const std::string* host = invocation.flag("host")) options.host = *host;
  options.port = number_flag(invocation, "port", 0, 65535, options.port);
  if (!is_loopback(options.host)) options.token = comm::random_token();
  RunList runs(invocation.positionals);
  ViewServer server(runs, options);
  std::printf("ringtape view: %s (Ctrl-C ends it)\n", printable(server.address()).c_str());
  std::fflush(stdout);
  server.run();
  return 0;
}

Command view_command() {
  Command command;
  command.name = "view";
  command.summary = "Shows runs in a browser, while they train and afterwards.";
  command.usage = "[RUN|FOLDER...] [FLAGS]";
  command.examples = {"view                             # all runs in the folder runs",
                      "view runs/digits runs/digits-2   # these runs",
                      "view --host 0.0.0.0 --port 9000  # also for other machines, which need the printed address"};
  command.positionals = std::numeric_limits<size_t>::max();
  command.flags = {{"Server", "host", "ADDRESS",
                    "address to serve on; beyond this machine, only who has the printed address with its token gets "
                    "anything",
                    "127.0.0.1"},
                   {"Server", "port", "N", "port; 0: any free one", "8080"}};
  command.run = run_view;
  return command;
}

}  // namespace ringtape::cli
