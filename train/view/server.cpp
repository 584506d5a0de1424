#include "train/view/server.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "comm/base/fd.h"
#include "comm/base/host_name.h"
#include "comm/store/token.h"
#include "core/check.h"
#include "train/view/clients.h"
#include "train/view/page.h"

namespace ringtape {
namespace {

constexpr const char *kHtml = "text/html; charset=utf-8", *kJson = "application/json", *kText = "text/plain";
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// "localhost" of "localhost:8080", "::1" of "[::1]:8080".
std::string host_of(const std::string& address) {
  if (!address.starts_with('[')) return address.substr(0, address.find(':'));
  const size_t end = address.find(']');
  const bool whole = end != std::string::npos && (end + 1 == address.size() || address[end + 1] == ':');
  return whole ? address.substr(1, end - 1) : "";
}

void answer(httplib::Response& out, int status, const std::string& text) {
  out.status = status;
  out.set_content(text + "\n", kText);
}

// The runs and positions of ?run=0:A&run=10:B. (Of equal parameters the library keeps one.)
std::optional<std::map<std::string, int64_t>> wanted_metrics(const httplib::Request& request) {
  constexpr size_t kMax = 64;
  const size_t count = request.get_param_value_count("run");
  if (count > kMax) return {};
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < count; ++i) {
    const std::string text = request.get_param_value("run", i);
    int64_t at = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), at);
    if (error != std::errc{} || end == text.data() + text.size() || *end != ':' || at < 0) return {};
    if (!out.emplace(end + 1, at).second) return {};
  }
  return out;
}

// The value of a cookie; empty if there is none.
std::string cookie(const httplib::Request& request, const std::string& name) {
  std::istringstream all(request.get_header_value("Cookie"));
  for (std::string each; std::getline(all >> std::ws, each, ';');)
    if (each.starts_with(name + "=")) return each.substr(name.size() + 1);
  return "";
}

// Requests by a Range header for parts of an answer are answered by all of it: the library makes each part, and there
// may be thousands.
std::string without_ranges(const std::string& head) {
  constexpr std::string_view kName = "range:";
  std::string out;
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find('\n', at), head.size() - 1) + 1;
    const std::string_view line = std::string_view(head).substr(at, end - at);
    const auto alike = [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); };
    if (!std::ranges::equal(kName, line.substr(0, kName.size()), alike)) out += line;
    at = end;
  }
  return out;
}

}  // namespace

// The library's server, but it answers in memory. Clients read and send.
class MemoryServer : public httplib::Server {
 public:
  MemoryServer() {
    new_task_queue = [] { return new AtOnce; };
  }

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
  template <class Self> static bool process(Self& self, httplib::Stream& stream, bool& closed) {
    if constexpr (requires { self.process_request(stream, false, closed, nullptr); })
      return self.process_request(stream, false, closed, nullptr);
    else return self.process_request(stream, "", 0, "", 0, false, closed, nullptr);
  }
  ClientAnswer answer(const std::string& head) {
    const std::string request = without_ranges(head);
    httplib::detail::BufferStream stream;  // what is written is added behind what is read
    stream.write(request.data(), request.size());
    bool closed = !request.starts_with("GET ");  // a body may follow
    const bool done = process(*this, stream, closed);
    return {stream.get_buffer().substr(request.size()), done && !closed};
  }

  Clients clients_{[this](const std::string& head) { return answer(head); }};
};

bool is_loopback(const std::string& host) {
  in_addr address{};
  const bool ipv4 = ::inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (ipv4 && ntohl(address.s_addr) >> 24 == 127);
}

struct ViewServer::Http {
  RunList& runs;
  ServerOptions options;
  MemoryServer server;
  int listener = -1;

  // Browsers send a host's cookies to each of its ports.
  std::string cookie_name() const { return concat("ringtape-view-", options.port); }
  bool knows_token(const httplib::Request& request) const {
    return comm::same(cookie(request, cookie_name()), options.token) ||
           comm::same(request.get_param_value("token"), options.token);
  }

  // Whether the request is refused.
  bool refuse(const httplib::Request& request, httplib::Response& out) const {
    for (const auto& [name, value] : {std::pair("Cache-Control", "no-store"),
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"Content-Security-Policy", kPolicy}})
      out.set_header(name, value);
    if (request.method != "GET" && request.method != "HEAD") answer(out, 405, "ringtape view: only GET is answered");
    else if (is_loopback(options.host) && !is_loopback(host_of(request.get_header_value("Host"))))
      answer(out, 403, "ringtape view: expected a request for localhost; with --host it serves other addresses");
    else if (!options.token.empty() && !knows_token(request))
      answer(out, 403, "ringtape view: open the address that it printed, with its token");
    else return false;
    return true;
  }

  void get(const char* path, std::function<void(const httplib::Request&, httplib::Response&)> handler) {
    server.Get(path, [handler = std::move(handler)](const httplib::Request& request, httplib::Response& out) {
      try {
        handler(request, out);
      } catch (const std::exception& e) {
        answer(out, 500, concat("ringtape view: ", e.what()));
      }
    });
  }
  static void give(httplib::Response& out, const std::optional<std::string>& json) {
    if (json) out.set_content(*json, kJson);
    else answer(out, 404, "ringtape view: there is no such run or snapshot");
  }

  Http(RunList& list, ServerOptions o) : runs(list), options(std::move(o)) {
    configure();
    answer_requests();
    bind();
  }

  void configure() {
    server.set_tcp_nodelay(true);
    server.set_payload_max_length(1024);
    // Not SO_REUSEPORT, its default, by which two servers share a port.
    server.set_socket_options([this](auto socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      listener = socket;
    });
    server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& out) {
      return refuse(request, out) ? httplib::Server::HandlerResponse::Handled
                                  : httplib::Server::HandlerResponse::Unhandled;
    });
    server.set_error_handler([](const httplib::Request&, httplib::Response& out) {
      if (out.body.empty()) answer(out, out.status, concat("ringtape view: error ", out.status));
    });
  }

  void answer_requests() {
    get("/", [this](const httplib::Request& request, httplib::Response& out) {
      if (request.has_param("token") && !options.token.empty())  // from now on the browser keeps it
        out.set_header("Set-Cookie", concat(cookie_name(), "=", options.token, "; HttpOnly; SameSite=Strict; Path=/"));
      out.set_content(page().data(), page().size(), kHtml);
    });
    get("/api/runs", [this](const httplib::Request&, httplib::Response& out) { give(out, runs.runs()); });
    get("/api/run", [this](const httplib::Request& request, httplib::Response& out) {
      give(out, runs.run(request.get_param_value("id")));
    });
    get("/api/snapshot", [this](const httplib::Request& request, httplib::Response& out) {
      give(out, runs.snapshot(request.get_param_value("id"), request.get_param_value("name")));
    });
    get("/api/metrics", [this](const httplib::Request& request, httplib::Response& out) {
      if (const auto wanted = wanted_metrics(request)) give(out, runs.metrics(*wanted));
      else answer(out, 400, "ringtape view: expected run=POSITION:RUN, at most 64 times");
    });
  }

  void bind() {
    const std::string where = concat(options.host, ":", options.port);
    addrinfo* found = nullptr;
    const int unknown = ::getaddrinfo(options.host.c_str(), nullptr, nullptr, &found);
    RT_CHECK_AS(IoError, unknown == 0, "cannot serve on ", where, ": ", ::gai_strerror(unknown),
                "; choose another --host");
    ::freeaddrinfo(found);
    errno = 0;
    if (options.port == 0) options.port = server.bind_to_any_port(options.host);
    else if (!server.bind_to_port(options.host, options.port)) options.port = -1;
    RT_CHECK_AS(IoError, options.port > 0, "cannot serve on ", where, ": ",
                errno != 0 ? std::strerror(errno) : "no such address",
                "; choose another --port (0: any free one) or --host");
    ::listen(listener, SOMAXCONN);  // its own queue has 5 places: a connection more waits a second
  }
};

ViewServer::ViewServer(RunList& runs, ServerOptions options)
    : http_(std::make_unique<Http>(runs, std::move(options))) {}
ViewServer::~ViewServer() = default;

std::string ViewServer::address() const {
  const ServerOptions& o = http_->options;
  const std::string host = o.host == "0.0.0.0" || o.host == "::" ? comm::host_name() : o.host;  // all of this machine's
  const bool ipv6 = host.find(':') != std::string::npos;
  return concat("http://", ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", o.port, "/",
                o.token.empty() ? "" : concat("?token=", o.token));
}

void ViewServer::run() { http_->server.listen_after_bind(); }
void ViewServer::stop() { http_->server.stop(); }

}  // namespace ringtape
