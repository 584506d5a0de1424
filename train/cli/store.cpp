#include <unistd.h>

#include <cstdio>

#include "comm/base/host_name.h"
#include "comm/job/membership.h"
#include "comm/launch/elastic.h"
#include "comm/store/tcp_store.h"
#include "core/env.h"
#include "train/cli/common.h"
#include "train/run/stop.h"

namespace ringtape::cli {
// How the job ended, when its last ranks have come; nullopt: a signal came first.
static std::optional<comm::Store::Entry> end_of_job(const comm::StoreAddress& address) {
  constexpr comm::Seconds kConnecting(60), kLook(0.1);
  const auto store = comm::tcp_store(address, comm::Deadline(kConnecting));
  const std::string keys[] = {comm::kDoneKey, comm::kFailureKey};
  while (!stop_requested())
    if (auto entry = store->wait_any(keys, comm::Deadline(kLook))) {
      comm::await_latecomers(*store);
      return entry;
    }
  return std::nullopt;
}

static int run_store(const Invocation& invocation) {
  constexpr comm::Seconds kAtOnce(0), kLeaving(10);
  constexpr comm::Seconds kWorking(1e8);  // the last evaluation, say; who is silent is dropped earlier
  comm::StoreServer::Options options;
  options.token = env::token();
  RT_CHECK_AS(UsageError, !options.token.empty(), "store: needs the environment variable RINGTAPE_TOKEN, ",
              "the secret of all processes of the job; export RINGTAPE_TOKEN=$(openssl rand -hex 16) makes one");
  const std::string* const host = invocation.flag("host");
  options.host = host ? *host : "";
  options.port = number_flag(invocation, "port", 0, 65535, 0);
  options.name = concat("ringtape store (pid ", ::getpid(), ")");
  options.heartbeat = comm::Seconds(env::heartbeat());
  stop_after_step();
  comm::StoreServer server(options);
  std::printf("ringtape store: listens on %s, port %d; ringtape launch --join %s:%d -n N starts ranks for its job\n",
              host ? host->c_str() : "every interface", server.port(), host ? host->c_str() : comm::host_name().c_str(),
              server.port());
  std::fflush(stdout);
  const auto end = end_of_job({host ? *host : "127.0.0.1", server.port(), options.token});
  if (!end) {
    server.stop_within(kAtOnce);
    std::fprintf(stderr, "ringtape: the store was told to end before its job was done\n");
    return comm::kPreempted;
  }
  stop_as_always();
  const bool done = end->key == comm::kDoneKey;
  server.stop_within(done ? kWorking : kLeaving);
  RT_CHECK_AS(CommError, done, end->value);
  return 0;
}

Command store_command() {
  Command command;
  command.name = "store";
  command.summary = "Keeps what the ranks of an elastic job agree on, while they come and go.";
  command.usage = "--port PORT [FLAGS]";
  command.examples = {"store --port 29500   # with RINGTAPE_TOKEN, as all launch --join node0:29500"};
  command.flags = {
      {"Server", "port", "PORT", "port to listen at; 0: any free one", "0"},
      {"Server", "host", "ADDRESS", "address to listen at", "every interface"},
  };
  command.run = run_store;
  return command;
}

}  // namespace ringtape::cli
