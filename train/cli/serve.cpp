#include <chrono>
#include <cstdio>
#include <thread>

#include "core/printable.h"
#include "train/cli/common.h"
#include "train/cli/predictor_of.h"
#include "train/run/stop.h"
#include "train/serve/prediction_server.h"

namespace ringtape::cli {
namespace {

PredictionServerOptions server_options(const Invocation& invocation) {
  PredictionServerOptions out;
  if (const std::string* host = invocation.flag("host")) out.host = *host;
  out.port = number_flag(invocation, "port", 0, 65535, out.port);
  out.top = number_flag<int64_t>(invocation, "top", 1, 1'000'000, out.top);
  out.megabytes = number_flag<size_t>(invocation, "max-size", 1, 1024, out.megabytes);
  out.batch.size = number_flag<size_t>(invocation, "batch-size", 1, 256, out.batch.size);
  out.batch.wait = std::chrono::milliseconds(number_flag<int64_t>(invocation, "wait", 0, 10'000, 0));
  return out;
}

int run_serve(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() == 1,
              "serve: name a run, a checkpoint or a file of weights: ringtape serve RUN|CHECKPOINT|FILE");
  const PredictionServerOptions options = server_options(invocation);
  const Predictor predictor = predictor_of(invocation);
  PredictionServer server(predictor, options);
  std::printf("ringtape serve: %s/predict answers by %s of %s (Ctrl-C ends it)\n", printable(server.address()).c_str(),
              predictor.model_name().c_str(), printable(predictor.weights_file()).c_str());
  std::fflush(stdout);
  stop_after_step();
  const std::jthread stopper([&](const std::stop_token& ended) {
    while (!ended.stop_requested() && !stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server.stop();
  });
  server.run();
  std::printf("ringtape serve: %s\n", server.summary().c_str());
  return 0;
}

}  // namespace

Command serve_command() {
  Command command;
  command.name = "serve";
  command.summary = "Answers by HTTP of which classes images are, by trained weights.";
  command.usage = "RUN|CHECKPOINT|FILE [FLAGS]";
  command.examples = {"serve digits        # curl --data-binary @seven.png http://127.0.0.1:8080/predict",
                      "serve model.safetensors --host 0.0.0.0 --port 9000  # also for other machines"};
  command.positionals = 1;
  command.flags = {
      {"Server", "host", "ADDRESS", "address to serve on; beyond this machine, whoever reaches it is answered",
       "127.0.0.1"},
      {"Server", "port", "N", "port; 0: any free one", "8080"},
      {"Server", "top", "N", "classes of an answer, the likeliest first, unless the request says ?top=N", "5"},
      {"Server", "max-size", "N", "largest request in megabytes", "32"},
      {"Server", "batch-size", "N", "images that are computed together, at most", "32"},
      {"Server", "wait", "MS", "how long a request waits for others to be computed with it", "0"}};
  for (Flag& flag : predictor_flags()) command.flags.push_back(std::move(flag));
  command.run = run_serve;
  return command;
}

}  // namespace ringtape::cli
