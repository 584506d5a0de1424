#include "train/serve/prediction_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <vector>

#include "autograd/ops.h"
#include "core/check.h"
#include "core/parallel.h"
#include "train/data/image/image_file.h"
#include "train/http/http_server.h"
#include "train/io/json.h"
#include "train/serve/traffic.h"

namespace ringtape {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char *kJson = "application/json", *kMetrics = "text/plain; version=0.0.4";

// A file of a request; a form gives each a name.
struct Upload {
  std::string_view content;
  std::string name;
};

// The files of a form. What the library calls them differs between its versions.
template <class Request> std::vector<Upload> uploads_of(const Request& request) {
  std::vector<Upload> out;
  const auto add = [&](const auto& files) {
    for (const auto& [field, file] : files)
      out.push_back({file.content, file.filename.empty() ? field : file.filename});
  };
  if (!request.is_multipart_form_data()) out.push_back({request.body, ""});
  else if constexpr (requires { request.form.files; }) add(request.form.files);
  else add(request.files);
  return out;
}

std::vector<Answer> answers_of(const Predictor& predictor, std::span<const std::string_view> files, int64_t top) {
  std::vector<Answer> out(files.size());
  Tensors images(files.size());
  parallel_for(int64_t(files.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = size_t(begin); i < size_t(end); ++i) try {
        images[i] = predictor.decode(std::as_bytes(std::span(files[i])));
      } catch (const Error& e) {
        out[i].error = e.what();
      }
  });
  std::erase_if(images, [](const Tensor& x) { return !x.defined(); });
  if (images.empty()) return out;
  std::vector<Predictions> all = predictor(concat(images), top);
  auto next = all.begin();
  for (Answer& answer : out)
    if (answer.error.empty()) answer.best = std::move(*next++);
  return out;
}

Json json_of(const Answer& answer, int64_t top) {
  if (!answer.error.empty()) return {{"error", answer.error}};
  const auto end = answer.best.begin() + std::min<std::ptrdiff_t>(top, std::ssize(answer.best));
  return {{"top", to_json(Predictions(answer.best.begin(), end))}};
}

std::optional<int64_t> top_of(const httplib::Request& request, int64_t otherwise, int64_t most) {
  if (!request.has_param("top")) return std::min(otherwise, most);
  const std::string text = request.get_param_value("top");
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || out < 1) return {};
  return std::min(out, most);
}

}  // namespace

struct PredictionServer::Http {
  const Predictor& predictor;
  PredictionServerOptions options;
  int64_t classes = int64_t(predictor.classes().size());
  Traffic traffic = {};
  Batcher batcher{[this](std::span<const std::string_view> files) {
                    traffic.add_batch(files.size());
                    return answers_of(predictor, files, classes);
                  },
                  options.batch};
  HttpServer server{{.name = "ringtape serve", .host = options.host, .port = options.port, .limits = limits()}};

  ClientLimits limits() const {
    const size_t body = options.megabytes << 20;
    return {.clients = 512,
            .body = body,
            .unread = std::max<size_t>(8 * body, 64 << 20),
            .threads = 2 * options.batch.size,  // those wait for the batcher
            .patience = std::chrono::seconds(30)};
  }

  static void give(httplib::Response& out, int status, const Json& json) {
    out.status = status;
    out.set_content(json.text() + "\n", kJson);
  }

  void predict(const httplib::Request& request, httplib::Response& out) {
    const std::vector<Upload> uploads = uploads_of(request);
    const std::optional<int64_t> top = top_of(request, options.top, classes);
    if (!top) return give(out, 400, {{"error", "top: expected a whole number of at least 1"}});
    if (uploads.empty() || uploads[0].content.empty())
      return give(out, 400, {{"error", concat("expected an image (", kImageFormats, ") or a form with images")}});
    std::vector<std::string_view> files;
    for (const Upload& each : uploads) files.push_back(each.content);
    const std::vector<Answer> answers = batcher.ask(files);
    const bool good = std::ranges::any_of(answers, [](const Answer& each) { return each.error.empty(); });
    if (!request.is_multipart_form_data()) return give(out, good ? 200 : 400, json_of(answers[0], *top));
    Json images = Json::list();
    for (size_t i = 0; i < answers.size(); ++i) {
      Json image{{"image", uploads[i].name}};
      const Json answer = json_of(answers[i], *top);
      for (const auto& [name, value] : answer.items()) image[name] = value;
      images.push_back(std::move(image));
    }
    give(out, good ? 200 : 400, {{"images", images}});
  }

  Json about() const {
    const Shape image = predictor.image_shape();
    return {{"model", predictor.model_name()},
            {"weights", predictor.weights_file()},
            {"image", {image[0], image[1], image[2]}},
            {"classes", predictor.classes()}};
  }

  Http(const Predictor& p, const PredictionServerOptions& o) : predictor(p), options(o) {
    server.post("/predict", [this](const httplib::Request& request, httplib::Response& out) {
      const Clock::time_point began = Clock::now();
      try {
        predict(request, out);
      } catch (const std::exception& e) {
        give(out, 500, {{"error", e.what()}});
      }
      traffic.add_request(out.status, std::chrono::duration<double>(Clock::now() - began).count());
    });
    server.get("/predict", [](const httplib::Request&, httplib::Response& out) {
      give(out, 405, {{"error", "expected POST with an image as content"}});
    });
    server.get("/", [this](const httplib::Request&, httplib::Response& out) { give(out, 200, about()); });
    server.get("/health", [](const httplib::Request&, httplib::Response& out) { give(out, 200, {{"status", "ok"}}); });
    server.get("/metrics",
               [this](const httplib::Request&, httplib::Response& out) { out.set_content(traffic.text(), kMetrics); });
  }
};

PredictionServer::PredictionServer(const Predictor& predictor, const PredictionServerOptions& options)
    : http_(std::make_unique<Http>(predictor, options)) {}
PredictionServer::~PredictionServer() = default;

std::string PredictionServer::address() const { return http_->server.address(); }
void PredictionServer::run() { http_->server.run(); }
void PredictionServer::stop() { http_->server.stop(); }

std::string PredictionServer::summary() const {
  const Traffic& traffic = http_->traffic;
  const auto milliseconds = [&](double q) { return 1000 * traffic.quantile(q); };
  return fmt::format("{} requests; half of the newest took at most {:.2f} ms, 99 of 100 at most {:.2f} ms",
                     traffic.requests(), milliseconds(0.5), milliseconds(0.99));
}

}  // namespace ringtape
