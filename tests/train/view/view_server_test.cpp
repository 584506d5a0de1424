// `ringtape view`: whom its server answers, and with what.
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "comm/base/fd.h"
#include "tests/support/view_runs.h"
#include "train/view/server.h"

namespace ringtape {
namespace {

// A server on a free port, as long as this lives.
class Served {
 public:
  explicit Served(RunList& list, ServerOptions options = {}) : server_(list, with_any_port(std::move(options))) {
    thread_ = std::thread([this] { server_.run(); });
    const std::string address = server_.address();
    port = std::stoi(address.substr(address.find(':', 6) + 1));
  }
  ~Served() {
    while (!get("/")) std::this_thread::yield();  // it has begun to listen
    server_.stop();
    thread_.join();
  }
  httplib::Result get(const std::string& path, const httplib::Headers& headers = {}) const {
    httplib::Client client("127.0.0.1", port);
    return client.Get(path.c_str(), headers);
  }
  int status(const std::string& path, const httplib::Headers& headers = {}) const {
    const auto answer = get(path, headers);
    return answer ? answer->status : 0;
  }
  std::string address() const { return server_.address(); }
  int port = 0;

 private:
  static ServerOptions with_any_port(ServerOptions o) {
    o.port = 0;
    return o;
  }
  ViewServer server_;
  std::thread thread_;
};

TEST_F(ViewTest, TheServerGivesOutNothingElse) {
  train("a", "--epochs 1");
  write_file(at("secret"), "secret");
  RunList list({at("runs")});
  const Served served(list);
  const std::string id = httplib::detail::encode_query_param(at("runs/a"));
  EXPECT_EQ(served.status("/"), 200);
  EXPECT_EQ(served.status("/api/runs"), 200);
  EXPECT_EQ(served.status("/api/run?id=" + id), 200);
  EXPECT_EQ(served.status("/api/snapshot?id=" + id + "&name=test"), 200);
  EXPECT_EQ(served.status("/api/metrics?run=0:" + id + "&run=0:other"), 200);
  for (const char* path : {"/secret", "/../secret", "/%2e%2e/secret", "/api/run", "/api/run?id=../secret",
                           "/api/run?id=", "/api/snapshot?id=&name=test", "/api/"})
    EXPECT_EQ(served.status(path), 404) << path;
  EXPECT_EQ(served.status("/api/snapshot?id=" + id + "&name=..%2f..%2f..%2fsecret"), 404);
  for (const char* from : {"-1:", "x:", "", ":", "1e3:", "99999999999999999999:"})
    EXPECT_EQ(served.status(std::string("/api/metrics?run=") + from + id), 400) << from;
  EXPECT_EQ(served.status("/api/metrics?run=9223372036854775807:" + id), 200);
  std::string many = "/api/metrics?";
  for (int i = 0; i < 65; ++i) many += "run=" + std::to_string(i) + ":x&";
  EXPECT_EQ(served.status(many), 400);
  EXPECT_EQ(served.status("/api/metrics?run=0:" + id + "&run=00:" + id), 400);
  for (const char* host :
       {"evil.example:80", "127.evil.example", "127.0.0.1.evil", "[::1]evil", "[::1", "localhost.evil"})
    EXPECT_EQ(served.status("/", {{"Host", host}}), 403) << host;
  EXPECT_EQ(served.status("/", {{"Host", "localhost:1"}}), 200);  // as through a tunnel
  httplib::Client client("127.0.0.1", served.port);
  EXPECT_EQ(client.Post("/api/runs", "x", "text/plain")->status, 405);
  EXPECT_EQ(client.Delete("/")->status, 405);
  EXPECT_NE(client.Get("/")->get_header_value("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
}

TEST_F(ViewTest, PartsOfAnAnswerAreNotGiven) {
  RunList list({folder_.string()});
  const Served served(list);
  const std::string page = served.get("/")->body;
  for (const char* name : {"Range", "rANGE"}) {
    const auto answer = served.get("/", {{name, "bytes=0-1"}});
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, page);
  }
}

TEST_F(ViewTest, BeyondThisMachineItNeedsTheToken) {
  train("a", "--epochs 1");
  RunList list({at("runs")});
  const Served served(list, {.host = "0.0.0.0", .token = "right"});
  EXPECT_MENTIONS(served.address(), "/?token=right");
  for (const char* path : {"/", "/api/runs", "/?token=", "/?token=wrong", "/api/runs?token=righ"})
    EXPECT_EQ(served.status(path), 403) << path;
  const std::string name = concat("ringtape-view-", served.port);
  for (const std::string& cookie : {name + "=wrong", "x" + name + "=right", name + "1=right", std::string("=right")})
    EXPECT_EQ(served.status("/api/runs", {{"Cookie", cookie}}), 403) << cookie;
  const auto page = served.get("/?token=right");
  ASSERT_EQ(page->status, 200);
  const std::string cookie = page->get_header_value("Set-Cookie");
  EXPECT_MENTIONS(cookie, "HttpOnly");
  EXPECT_EQ(served.status("/api/runs", {{"Cookie", "a=b; " + cookie.substr(0, cookie.find(';'))}}), 200);
}

TEST_F(ViewTest, ManyClientsAtOnceAreAnswered) {
  train("a", "--epochs 1");
  RunList list({at("runs")});
  const Served served(list);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      httplib::Client client("127.0.0.1", served.port);
      client.set_keep_alive(true);
      for (int i = 0; i < 2500; ++i) good += client.Get("/api/runs")->status == 200;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 10000);
}

// The system takes them before the server does.
TEST_F(ViewTest, ManyConnectionsMayWait) {
  RunList list({at(".")});
  ServerOptions options;
  options.port = 0;
  const ViewServer server(list, options);  // nobody calls run()
  const std::string address = server.address();
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(uint16_t(std::stoi(address.substr(address.find(':', 6) + 1))));
  std::vector<comm::Fd> waiting;
  for (int i = 0; i < 100; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
    const timeval most{.tv_sec = 0, .tv_usec = 500'000};  // the first repetition of a lost packet takes a second
    ::setsockopt(waiting.back().get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    ASSERT_EQ(::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << i;
  }
}

TEST_F(ViewTest, ATakenPortIsNamed) {
  RunList list({folder_.string()});
  const Served served(list);
  expect_error(
      "view --port " + std::to_string(served.port), 1,
      "cannot serve on 127.0.0.1:" + std::to_string(served.port) + ": Address already in use; choose another --port");
}

TEST_F(ViewTest, WrongUseIsNamed) {
  expect_error("view nowhere", 1, "nowhere: there is no such folder");
  expect_error("view --port 70000", 2, "--port: expected a whole number from 0 to 65535, got '70000'");
  expect_error("view --host not.an.address.invalid", 1, "cannot serve on not.an.address.invalid:8080");
}

}  // namespace
}  // namespace ringtape
