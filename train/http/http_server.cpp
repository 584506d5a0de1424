#include "train/http/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "comm/base/host_name.h"
#include "core/check.h"

namespace ringtape {
namespace {

// "localhost" of "localhost:8080", "::1" of "[::1]:8080".
std::string host_of(const std::string& address) {
  if (!address.starts_with('[')) return address.substr(0, address.find(':'));
  const size_t end = address.find(']');
  const bool whole = end != std::string::npos && (end + 1 == address.size() || address[end + 1] == ':');
  return whole ? address.substr(1, end - 1) : "";
}

// Without the lines by which the library would do more than answer a request: of parts of an answer it makes each, and
// there may be thousands; content that curl and others call a form, if nobody says what it is, it reads as one.
std::string for_library(const std::string& request) {
  const auto is_left_out = [](std::string_view line) {
    constexpr std::string_view kLines[] = {"range:", "content-type: application/x-www-form-urlencoded"};
    const auto alike = [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); };
    return std::ranges::any_of(
        kLines, [&](std::string_view begin) { return std::ranges::equal(begin, line.substr(0, begin.size()), alike); });
  };
  const size_t head = std::min(request.find("\r\n\r\n"), request.size());
  std::string out;
  for (size_t at = 0; at < head;) {
    const size_t end = std::min(request.find('\n', at), head + 1) + 1;
    const std::string_view line = std::string_view(request).substr(at, end - at);
    if (!is_left_out(line)) out += line;
    at = end;
  }
  return out += std::string_view(request).substr(std::min(head + 2, request.size()));
}

}  // namespace

void answer_text(httplib::Response& out, int status, const std::string& text) {
  out.status = status;
  out.set_content(text + "\n", "text/plain");
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  const bool ipv4 = ::inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (ipv4 && ntohl(address.s_addr) >> 24 == 127);
}

// The library's server, but it answers in memory. Clients read and send.
class HttpServer::Library : public httplib::Server {
 public:
  explicit Library(const ClientLimits& limits)
      : clients_([this](const std::string& request) { return answer(request); }, limits) {
    new_task_queue = [] { return new AtOnce; };
    set_payload_max_length(limits.body);
  }
  void end_connections() { last_ = true; }  // with their next answer
  void finish() { clients_.finish(); }

 private:
  // What its functions return, and their arguments, differ between the library's versions.
  struct AtOnce : httplib::TaskQueue {
    using Taken = decltype(std::declval<httplib::TaskQueue>().enqueue({}));
    Taken enqueue(std::function<void()> task) override {
      task();
      return Taken(true);
    }
    void shutdown() override {}
  };
  bool process_and_close_socket(int socket) override {
    clients_.add(comm::Fd(socket));
    return true;
  }
  template <class Self> static bool process(Self& self, httplib::Stream& stream, bool last, bool& closed) {
    if constexpr (requires { self.process_request(stream, last, closed, nullptr); })
      return self.process_request(stream, last, closed, nullptr);
    else return self.process_request(stream, "", 0, "", 0, last, closed, nullptr);
  }
  ClientAnswer answer(const std::string& whole) {
    const std::string request = for_library(whole);
    httplib::detail::BufferStream stream;  // what is written is added behind what is read
    stream.write(request.data(), request.size());
    bool closed = last_;
    const bool done = process(*this, stream, last_, closed);
    return {stream.get_buffer().substr(request.size()), done && !closed};
  }

  std::atomic<bool> last_ = false;
  Clients clients_;
};

HttpServer::HttpServer(HttpOptions options)
    : options_(std::move(options)), library_(std::make_unique<Library>(options_.limits)) {
  library_->set_tcp_nodelay(true);
  // Not SO_REUSEPORT, its default, by which two servers share a port.
  library_->set_socket_options([this](auto socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listener_ = socket;
  });
  library_->set_error_handler([this](const httplib::Request&, httplib::Response& out) {
    if (out.body.empty()) answer_text(out, out.status, concat(options_.name, ": error ", out.status));
  });
  refuse([](const httplib::Request&, httplib::Response&) { return false; });
  bind();
}
HttpServer::~HttpServer() = default;

HttpServer::Handler HttpServer::guarded(Handler handler) const {
  return [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& out) {
    try {
      handler(request, out);
    } catch (const std::exception& e) {
      answer_text(out, 500, concat(options_.name, ": ", e.what()));
    }
  };
}
void HttpServer::get(const char* path, Handler handler) { library_->Get(path, guarded(std::move(handler))); }
void HttpServer::post(const char* path, Handler handler) { library_->Post(path, guarded(std::move(handler))); }

void HttpServer::refuse(std::function<bool(const httplib::Request&, httplib::Response&)> refuses) {
  library_->set_pre_routing_handler([this, refuses = std::move(refuses)](const httplib::Request& request,
                                                                         httplib::Response& out) {
    using enum httplib::Server::HandlerResponse;
    if (refuses(request, out)) return Handled;
    if (!is_loopback(options_.host) || is_loopback(host_of(request.get_header_value("Host")))) return Unhandled;
    answer_text(out, 403, options_.name + ": expected a request for localhost; with --host it serves other addresses");
    return Handled;
  });
}

void HttpServer::bind() {
  const std::string where = concat(options_.host, ":", options_.port);
  addrinfo* found = nullptr;
  const int unknown = ::getaddrinfo(options_.host.c_str(), nullptr, nullptr, &found);
  RT_CHECK_AS(IoError, unknown == 0, "cannot serve on ", where, ": ", ::gai_strerror(unknown),
              "; choose another --host");
  ::freeaddrinfo(found);
  errno = 0;
  if (options_.port == 0) options_.port = library_->bind_to_any_port(options_.host);
  else if (!library_->bind_to_port(options_.host, options_.port)) options_.port = -1;
  RT_CHECK_AS(IoError, options_.port > 0, "cannot serve on ", where, ": ",
              errno != 0 ? std::strerror(errno) : "no such address",
              "; choose another --port (0: any free one) or --host");
  ::listen(listener_, SOMAXCONN);  // its own queue has 5 places: a connection more waits a second
}

std::string HttpServer::address() const {
  const std::string& named = options_.host;
  const std::string host = named == "0.0.0.0" || named == "::" ? comm::host_name() : named;  // all of this machine's
  const bool ipv6 = host.find(':') != std::string::npos;
  return concat("http://", ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", options_.port);
}

void HttpServer::run() {
  runs_ = true;
  if (!stops_) library_->listen_after_bind();
  ended_ = true;
  library_->finish();
}

void HttpServer::stop() {
  library_->end_connections();
  for (stops_ = true; runs_ && !ended_; std::this_thread::sleep_for(std::chrono::milliseconds(5))) library_->stop();
}

}  // namespace ringtape
