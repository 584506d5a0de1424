#pragma once
#include <httplib.h>

#include <atomic>
#include <functional>
#include <string>

#include "train/http/clients.h"

namespace ringtape {

struct HttpOptions {
  std::string name;  // of the program, for what it answers: "ringtape view"
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  ClientLimits limits = {};
};

bool is_loopback(const std::string& host);

void answer_text(httplib::Response& out, int status, const std::string& text);

// A small server of HTTP. On a loopback address it refuses requests that name another host, as a foreign page would
// send them by a name that it resolves to that address.
class HttpServer {
 public:
  using Handler = std::function<void(const httplib::Request&, httplib::Response&)>;

  // Takes the port. Throws IoError if that fails.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();

  // What answers a path: several threads call it; what it throws is answered as 500.
  void get(const char* path, Handler handler);
  void post(const char* path, Handler handler);
  // Comes before all of them, and says whether it has refused the request.
  void refuse(std::function<bool(const httplib::Request&, httplib::Response&)> refuses);

  const HttpOptions& options() const { return options_; }  // with the port that it has
  std::string address() const;                             // "http://127.0.0.1:8080"
  void run();   // until stop(); then it answers the requests that have come as a whole
  void stop();  // from another thread

 private:
  class Library;

  Handler guarded(Handler handler) const;
  void bind();

  HttpOptions options_;
  std::unique_ptr<Library> library_;
  int listener_ = -1;
  std::atomic<bool> runs_ = false, stops_ = false, ended_ = false;
};

}  // namespace ringtape
