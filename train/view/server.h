#pragma once
#include <memory>
#include <string>

#include "train/view/run_list.h"

namespace ringtape {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;    // 0: any free one
  std::string token;  // what a browser must show; empty: nothing
};

// Serves the page of `ringtape view` and answers what it asks for. It changes nothing and gives out nothing but the
// runs of its list.
class ViewServer {
 public:
  // Takes the port. Throws IoError if that fails.
  ViewServer(RunList& runs, const ServerOptions& options);
  ~ViewServer();
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  std::string address() const;  // to open in a browser; with the token
  void run();                   // until stop()
  void stop();                  // from another thread

 private:
  struct Http;
  std::unique_ptr<Http> http_;
};

}  // namespace ringtape
