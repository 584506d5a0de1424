#include "train/view/server.h"

#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "comm/store/token.h"
#include "core/check.h"
#include "train/http/http_server.h"
#include "train/view/page.h"

namespace ringtape {
namespace {

constexpr const char *kHtml = "text/html; charset=utf-8", *kJson = "application/json";
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

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

}  // namespace

struct ViewServer::Http {
  RunList& runs;
  std::string token;
  HttpServer server;

  // Browsers send a host's cookies to each of its ports.
  std::string cookie_name() const { return concat("ringtape-view-", server.options().port); }
  bool knows_token(const httplib::Request& request) const {
    return comm::same(cookie(request, cookie_name()), token) || comm::same(request.get_param_value("token"), token);
  }

  // Whether the request is refused.
  bool refuse(const httplib::Request& request, httplib::Response& out) const {
    for (const auto& [name, value] : {std::pair("Cache-Control", "no-store"),
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"Content-Security-Policy", kPolicy}})
      out.set_header(name, value);
    if (request.method != "GET" && request.method != "HEAD")
      answer_text(out, 405, "ringtape view: only GET is answered");
    else if (!token.empty() && !knows_token(request))
      answer_text(out, 403, "ringtape view: open the address that it printed, with its token");
    else return false;
    return true;
  }

  static void give(httplib::Response& out, const std::optional<std::string>& json) {
    if (json) out.set_content(*json, kJson);
    else answer_text(out, 404, "ringtape view: there is no such run or snapshot");
  }

  Http(RunList& list, const ServerOptions& o)
      : runs(list), token(o.token), server({.name = "ringtape view", .host = o.host, .port = o.port}) {
    server.refuse([this](const auto& request, auto& out) { return refuse(request, out); });
    server.get("/", [this](const httplib::Request& request, httplib::Response& out) {
      if (request.has_param("token") && !token.empty())  // from now on the browser keeps it
        out.set_header("Set-Cookie", concat(cookie_name(), "=", token, "; HttpOnly; SameSite=Strict; Path=/"));
      out.set_content(page().data(), page().size(), kHtml);
    });
    server.get("/api/runs", [this](const httplib::Request&, httplib::Response& out) { give(out, runs.runs()); });
    server.get("/api/run", [this](const httplib::Request& request, httplib::Response& out) {
      give(out, runs.run(request.get_param_value("id")));
    });
    server.get("/api/snapshot", [this](const httplib::Request& request, httplib::Response& out) {
      give(out, runs.snapshot(request.get_param_value("id"), request.get_param_value("name")));
    });
    server.get("/api/metrics", [this](const httplib::Request& request, httplib::Response& out) {
      if (const auto wanted = wanted_metrics(request)) give(out, runs.metrics(*wanted));
      else answer_text(out, 400, "ringtape view: expected run=POSITION:RUN, at most 64 times");
    });
  }
};

ViewServer::ViewServer(RunList& runs, const ServerOptions& options) : http_(std::make_unique<Http>(runs, options)) {}
ViewServer::~ViewServer() = default;

std::string ViewServer::address() const {
  return concat(http_->server.address(), "/", http_->token.empty() ? "" : "?token=" + http_->token);
}

void ViewServer::run() { http_->server.run(); }
void ViewServer::stop() { http_->server.stop(); }

}  // namespace ringtape
