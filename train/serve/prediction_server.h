#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "train/inference/predictor.h"
#include "train/serve/batcher.h"

namespace ringtape {

struct PredictionServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;        // 0: any free one
  int64_t top = 5;        // classes of an answer, unless the request says otherwise
  size_t megabytes = 32;  // of a request; 2^20 bytes each
  BatchOptions batch = {};
};

// Says by HTTP of which classes images are (docs/inference.md): POST /predict with a file, or a form of several; GET /,
// /health and /metrics.
class PredictionServer {
 public:
  // Takes the port. Throws IoError if that fails. The predictor, one with classes, must outlive it.
  PredictionServer(const Predictor& predictor, const PredictionServerOptions& options);
  ~PredictionServer();
  PredictionServer(const PredictionServer&) = delete;
  PredictionServer& operator=(const PredictionServer&) = delete;

  std::string address() const;
  void run();                   // until stop(); then it answers the requests that have come as a whole
  void stop();                  // from another thread
  std::string summary() const;  // one line: how many requests there were, and how long they took

 private:
  struct Http;
  std::unique_ptr<Http> http_;
};

}  // namespace ringtape
