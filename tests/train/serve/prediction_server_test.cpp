// `ringtape serve`: answers equal to a Predictor's, whatever else is asked.
#include "train/serve/prediction_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <regex>
#include <thread>

#include "tests/support/predictor_files.h"
#include "tests/support/support.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

class PredictionServerTest : public test::PredictorFiles {
 protected:
  void SetUp() override {
    PredictorFiles::SetUp();
    write("model.safetensors", "mlp");
    predictor_ = std::make_unique<Predictor>(path("model.safetensors"));
    begin({});
  }
  void begin(PredictionServerOptions options) {
    end();
    options.port = 0;
    server_ = std::make_unique<PredictionServer>(*predictor_, options);
    thread_ = std::thread([this] { server_->run(); });
    address_ = server_->address();
  }
  void end() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }
  void TearDown() override {
    end();
    PredictorFiles::TearDown();
  }
  httplib::Client client() const {
    httplib::Client out(address_);
    out.set_keep_alive(true);
    return out;
  }
  std::string image(const std::string& name) const { return read_file(write_image(name, 60, 70)); }
  std::string expected(const std::string& content, int64_t top = 5) const {
    Json list = Json::list();
    for (const Prediction& each : (*predictor_)(std::as_bytes(std::span(content)), top))
      list.push_back({{"class", each.name}, {"probability", each.probability}});
    return Json{{"top", list}}.text() + "\n";
  }

  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<PredictionServer> server_;
  std::thread thread_;
  std::string address_;
};

TEST_F(PredictionServerTest, AnImageIsAnswered) {
  const std::string content = image("a.ppm");
  httplib::Client http = client();
  // The second is what curl says of content of which it knows nothing; the library has a limit of 8 KiB for it.
  for (const char* type : {"image/x-portable-pixmap", "application/x-www-form-urlencoded", ""}) {
    const auto answer = http.Post("/predict", content, type);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200) << type;
    EXPECT_EQ(answer->body, expected(content)) << type;
    EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
  }
  EXPECT_EQ(http.Post("/predict?top=1", content, "")->body, expected(content, 1));
  EXPECT_EQ(http.Post("/predict?top=99", content, "")->body, expected(content, 7));
}

TEST_F(PredictionServerTest, AFormHasSeveral) {
  const std::string a = image("a.ppm"), b = image("b.ppm");
  httplib::Client http = client();
  const auto answer =
      http.Post("/predict?top=2", {{"x", a, "a.ppm", "image/x"}, {"y", "text", "", ""}, {"z", b, "", ""}});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  const Json images = parse_json(answer->body)["images"];
  ASSERT_EQ(images.parts().size(), 3u);
  const auto named = [&](const char* name) {
    for (const Json& each : images)
      if (each["image"] == Json(name)) return each;
    return Json();
  };
  EXPECT_EQ(named("a.ppm")["top"], parse_json(expected(a, 2))["top"]);
  EXPECT_EQ(named("z")["top"], parse_json(expected(b, 2))["top"]);
  EXPECT_MENTIONS(named("y")["error"].get<std::string>(), "image");
  EXPECT_EQ(http.Post("/predict", {{"y", "text", "", ""}})->status, 400);
}

TEST_F(PredictionServerTest, WhatIsWrongIsSaidInOneLine) {
  begin({.megabytes = 1});
  httplib::Client http = client();
  const auto expect = [&](const httplib::Result& answer, int status, const std::string& part) {
    ASSERT_TRUE(answer) << part;
    EXPECT_EQ(answer->status, status) << part;
    EXPECT_MENTIONS(answer->body, part);
    EXPECT_EQ(std::count(answer->body.begin(), answer->body.end(), '\n'), 1) << answer->body;
  };
  expect(http.Post("/predict", "", ""), 400, "expected an image (JPEG, PNG");
  expect(http.Post("/predict", "garbage", ""), 400, "{\"error\":\"image: ");
  expect(http.Post("/predict", image("a.ppm").substr(0, 99), ""), 400, "{\"error\":\"image: ");
  for (const char* top : {"0", "-1", "x", "", "1.5", "99999999999999999999"})
    expect(http.Post(std::string("/predict?top=") + top, image("a.ppm"), ""), 400, "expected a whole number");
  expect(http.Post("/predict", std::string((1 << 20) + 1, 'x'), ""), 413, "expected at most 1048576 bytes");
  expect(client().Get("/predict"), 405, "expected POST");
  expect(client().Get("/nothing"), 404, "ringtape serve: error 404");
  expect(client().Get("/", {{"Host", "evil.example"}}), 403, "localhost");
}

TEST_F(PredictionServerTest, ItSaysWhatItIs) {
  httplib::Client http = client();
  const Json about = parse_json(http.Get("/")->body);
  EXPECT_EQ(about["model"], Json("mlp"));
  EXPECT_EQ(about["image"], (Json{28, 28, 3}));
  EXPECT_EQ(about["classes"].parts().size(), 7u);
  EXPECT_EQ(http.Get("/health")->body, "{\"status\":\"ok\"}\n");
  http.Post("/predict", image("a.ppm"), "");
  http.Post("/predict", "garbage", "");
  const std::string metrics = http.Get("/metrics")->body;
  for (const char* line : {"ringtape_requests_total{code=\"200\"} 1\n", "ringtape_requests_total{code=\"400\"} 1\n",
                           "ringtape_request_seconds_count 2\n", "ringtape_batches_total 2\n",
                           "ringtape_request_seconds{quantile=\"0.99\"} "})
    EXPECT_MENTIONS(metrics, line);
  EXPECT_MENTIONS(server_->summary(), "2 requests; half");
}

TEST_F(PredictionServerTest, ManyClientsGetTheSameBytes) {
  constexpr int kClients = 8, kEach = 40;
  std::vector<std::string> contents, wanted;
  for (int i = 0; i < 5; ++i) {
    contents.push_back(image(std::to_string(i) + ".ppm"));
    wanted.push_back(expected(contents.back()));
  }
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kClients; ++t)
    threads.emplace_back([&, t] {
      httplib::Client http = client();
      for (int i = 0; i < kEach; ++i) {
        const size_t which = size_t(t + i) % contents.size();
        const auto answer = http.Post("/predict", contents[which], "");
        good += answer && answer->status == 200 && answer->body == wanted[which];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kClients * kEach);
}

// `ringtape serve`, of which the output goes to files, until a signal.
class ServeCommandTest : public test::PredictorFiles {
 protected:
  int run(const std::string& arguments, const std::string& after = "") {
    const int status = std::system(concat("cd ", folder_.string(), " || exit; : >out; ", RINGTAPE_BINARY, " serve ",
                                          arguments, " >out 2>err </dev/null", after)
                                       .c_str());
    return WEXITSTATUS(status);
  }
  void expect_error(const std::string& arguments, int code, const std::string& part) {
    EXPECT_EQ(run(arguments), code) << arguments;
    EXPECT_MENTIONS(read_file(path("err")), part);
    EXPECT_EQ(read_file(path("out")), "");
  }
  // The part of the output that `pattern` matches in parentheses, once it is there.
  std::string printed(const std::string& pattern) const {
    for (std::smatch found;; std::this_thread::sleep_for(std::chrono::milliseconds(20)))
      if (const std::string out = read_file(path("out")); std::regex_search(out, found, std::regex(pattern)))
        return found[1];
  }
};

TEST_F(ServeCommandTest, ServesUntilASignal) {
  write("model.safetensors", "mlp");
  ASSERT_EQ(run("model.safetensors --port 0 --top 3 --threads 1", " & echo $! >pid"), 0);
  httplib::Client http(printed("(http://127.0.0.1:[0-9]+)/predict answers by mlp of model.safetensors"));
  const auto answer = http.Post("/predict", read_file(write_image("a.ppm", 30, 40)), "");
  ASSERT_TRUE(answer);
  EXPECT_EQ(parse_json(answer->body)["top"].parts().size(), 3u);
  ::kill(std::stoi(read_file(path("pid"))), SIGTERM);
  EXPECT_EQ(printed("serve: ([0-9]+) requests; half of the newest took at most [0-9.]+ ms"), "1");
  EXPECT_EQ(read_file(path("err")), "");
}

TEST_F(ServeCommandTest, WrongUseIsNamed) {
  expect_error("", 2, "serve: name a run, a checkpoint or a file of weights");
  expect_error("nothing", 1, "nothing");
  expect_error("x --port 70000", 2, "--port: expected a whole number from 0 to 65535, got '70000'");
  expect_error("x --batch-size 0", 2, "--batch-size: expected a whole number from 1 to 256, got '0'");
  write("model.safetensors", "mlp");
  expect_error("model.safetensors --host not.an.address.invalid", 1, "cannot serve on not.an.address.invalid:8080");
}

}  // namespace
}  // namespace ringtape
