#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <optional>

#include "autograd/autocast.h"
#include "core/part.h"
#include "core/registry.h"
#include "train/cli/common.h"
#include "train/cli/trained.h"
#include "train/evaluation/confusion.h"
#include "train/evaluation/knn.h"
#include "train/evaluation/linear_probe.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"
#include "train/run/metrics_log.h"

namespace ringtape::cli {
namespace {

void check_loss(double loss, const std::string& weights, const ExecutionOptions& o) {
  RT_CHECK_AS(Error, std::isfinite(loss), weights, ": the loss is ", std::isnan(loss) ? "NaN" : "infinite",
              ", although the weights are finite: the outputs are too large",
              o.precision == "f32" ? "" : "; try --precision f32");
}

int test_outputs(const Invocation& invocation, Trained trained) {
  trained.train = false;
  const std::string* file = invocation.flag("logits");
  if (file) check_output(trained, "logits", *file);
  const bool per_class = invocation.has("per-class"), confused = invocation.has("confusion");
  const bool wanted = file || per_class || confused;
  RunSetup task(resolve(trained.options), trained.beginning());
  const TrainOptions& options = task.options;
  load_trained(trained, task);
  Tensors batches;
  EvalOptions how = eval_options(options);
  how.progress = !options.run.json;
  const Metrics m =
      evaluate(task, task.data.test, all_samples(task.data.test), "test", how, wanted ? &batches : nullptr);
  check_loss(*m.loss, trained.weights, options.execution);
  const Tensor logits = wanted ? concat(batches) : Tensor();
  if (file) write_safetensors(*file, {{"logits", logits}});
  std::optional<Confusion> confusion;
  if (per_class || confused)
    confusion.emplace(logits, slice(to(task.data.test.labels, Device{}), 0, 0, logits.dim(0)),
                      task.data.test.class_names);
  if (options.run.json) {
    Json line = parse_json(json_line(m));
    line.erase("epoch"), line.erase("step");
    line["images"] = m.images, line["data"] = options.data.set.name, line["weights"] = trained.weights;
    if (per_class) line["per_class"] = confusion->per_class_json();
    if (confused) line["confusion"] = confusion->json();
    std::printf("%s\n", line.text().c_str());
    return 0;
  }
  const std::string all = with_commas(task.data.test.size());
  const std::string tested =
      m.images < task.data.test.size() ? concat(with_commas(m.images), " of the ", all) : "the " + all;
  std::printf("%s on %s test images of %s\n%s\n", trained.weights.c_str(), tested.c_str(), task.data.test.name.c_str(),
              metrics_text(m, 0).c_str());
  if (per_class) std::printf("\n%s", confusion->per_class_text().c_str());
  if (confused) std::printf("\n%s", confusion->text().c_str());
  return 0;
}

// The result of a protocol that evaluates features, and its settings.
struct Judged {
  Tally tally;
  std::string title;  // "kNN, k 200, temperature 0.1"
  Json settings;
};

// `of_run`: the settings of the run, for what no flag says.
using Judge = Judged (*)(const Invocation&, const EvaluationOptions& of_run, const Features& bank,
                         const Features& queries, const RunSetup&);

Judged by_neighbours(const Invocation& invocation, const EvaluationOptions& of_run, const Features& bank,
                     const Features& queries, const RunSetup& task) {
  Knn knn = of_run.knn;
  knn.k = number_flag<int64_t>(invocation, "knn-k", 1, 1'000'000'000, knn.k);
  knn.temperature = number_flag(invocation, "knn-temperature", 1e-6, 1e6, knn.temperature);
  RT_CHECK_AS(UsageError, knn.k <= bank.size(), "--knn-k ", knn.k, ": more neighbours than the ", bank.size(),
              " training images; choose a smaller one");
  return {knn_tally(queries, bank, task.data.train.classes, knn),
          fmt::format("kNN, k {}, temperature {:g}", knn.k, knn.temperature),
          {{"k", knn.k}, {"temperature", knn.temperature}}};
}

Judged by_a_layer(const Invocation& invocation, const EvaluationOptions&, const Features& bank, const Features& queries,
                  const RunSetup& task) {
  LinearProbe probe;
  probe.epochs = number_flag<int64_t>(invocation, "probe-epochs", 1, 1'000'000, probe.epochs);
  probe.lr = number_flag(invocation, "probe-lr", 0.0, 1e6, probe.lr);
  probe.seed = uint64_t(task.options.execution.seed);
  return {linear_probe(bank, queries, task.data.train.classes, probe),
          fmt::format("linear probe, {} epochs, learning rate {:g}", probe.epochs, probe.lr),
          {{"epochs", probe.epochs}, {"lr", probe.lr}}};
}

void print_judged(const Invocation& invocation, const std::string& weights, const RunSetup& task, const Judged& found,
                  const Features& bank, const Features& queries) {
  if (task.options.run.json) {
    Json line{{"protocol", *invocation.flag("protocol")}, {"top1", found.tally.top1()}, {"top5", found.tally.top5()}};
    line.update(found.settings);
    line["train_images"] = bank.size(), line["images"] = queries.size(), line["features"] = bank.x.dim(1);
    line["data"] = task.options.data.set.name, line["weights"] = weights;
    std::printf("%s\n", line.text().c_str());
    return;
  }
  std::printf("%s: %s\n%d features of %s training and %s test images of %s\ntop-1 %s  top-5 %s\n", weights.c_str(),
              found.title.c_str(), int(bank.x.dim(1)), with_commas(bank.size()).c_str(),
              with_commas(queries.size()).c_str(), task.data.test.name.c_str(), percent(found.tally.top1()).c_str(),
              percent(found.tally.top5()).c_str());
}

template <Judge judge> int test_features(const Invocation& invocation, Trained trained) {
  constexpr bool by_knn = judge == by_neighbours;
  for (const char* flag : {"logits", "per-class", "confusion"})
    RT_CHECK_AS(UsageError, !invocation.flag(flag), "--", flag, ": needs --protocol test");
  RunSetup task(resolve(trained.options), trained.beginning());
  const TrainOptions& options = task.options;
  load_trained(trained, task, true);
  const Autocast autocast(compute_dtype(options.execution));
  const Embedding f = [&](const Tensor& x) { return classifier(*task.model, options.model.name).features(x); };
  const auto features = [&](const Dataset& data, const char* title, std::vector<int64_t> samples, int64_t limit) {
    if (limit > 0 && int64_t(samples.size()) > limit) samples.resize(size_t(limit));
    Features out = embed(
        *task.model, f, data, samples,
        {.device = task.device, .workers = int(options.execution.workers), .progress = options.run.json ? "" : title});
    check_finite(concat(trained.weights, ": the features of the ", title, " images"), out.x);
    return out;
  };
  const auto limit = number_flag<int64_t>(invocation, "knn-bank", 0, 1'000'000'000, by_knn ? trained.judged.bank : 0);
  RT_CHECK_AS(UsageError, limit == 0 || by_knn,
              "--knn-bank: needs --protocol knn; the linear probe uses all training images");
  const Dataset &train = task.data.train, &test = task.data.test;
  const auto shuffled = [&] {
    return holdout(train.size(), 0, uint64_t(options.execution.seed)).train;
  };  // as in a training run
  const int64_t queried = kEvalBatch * options.trainer.limit_eval_batches;
  const Features bank = features(train, "train", limit > 0 ? shuffled() : all_samples(train), limit),
                 queries = features(test, "test", evenly(test.size(), queried > 0 ? queried : test.size()), 0);
  print_judged(invocation, trained.weights, task, judge(invocation, trained.judged, bank, queries, task), bank,
               queries);
  return 0;
}

struct Protocol {
  const char* name;
  int (*run)(const Invocation& invocation, Trained trained);
};
const Protocol kProtocols[] = {
    {"test", test_outputs},
    {"knn", test_features<by_neighbours>},
    {"linear", test_features<by_a_layer>},
};

int run_evaluate(const Invocation& invocation) {
  const std::string* const wanted = invocation.flag("protocol");
  const Protocol& protocol = find_entry(kProtocols, wanted ? *wanted : kProtocols[0].name, "value", "--protocol: ");
  return protocol.run(invocation, find_trained(invocation, "evaluate"));
}

}  // namespace

Command evaluate_command() {
  Command command;
  command.name = "evaluate";
  command.summary = "Tests the weights of a run, a checkpoint or a file: outputs or features.";
  command.usage = "RUN|CHECKPOINT|FILE [FLAGS]";
  command.examples = {"evaluate runs/digits",
                      "evaluate digits --json",
                      "evaluate runs/digits/checkpoints/best",
                      "evaluate digits --per-class --confusion",
                      "evaluate digits --protocol knn --knn-k 20",
                      "evaluate model.safetensors --model mlp --data mnist --data-dir ~/mnist"};
  command.positionals = 1;
  const Knn knn;
  const LinearProbe probe;
  const auto of_run = [](const std::string& otherwise) { return concat("that of the run, else ", otherwise); };
  command.flags = {
      {"Evaluation", "protocol", "NAME",
       "what to measure: test (the outputs), knn (the features, by the nearest training images), linear (the features, "
       "by a linear layer trained on them)",
       "test"},
      {"Evaluation", "logits", "FILE",
       "also write the outputs, (images, classes) in the data set's order, as a safetensors file", ""},
      {"Evaluation", "per-class", "", "also the recall, precision and F1 of each class", ""},
      {"Evaluation", "confusion", "", "also how often images of each class are taken for each class", ""},
      {"Evaluation", "knn-k", "N", "knn: number of nearest training images that vote", of_run(std::to_string(knn.k))},
      {"Evaluation", "knn-temperature", "X", "knn: a neighbour's vote is weighted by exp(cosine / X)",
       of_run(shortest(knn.temperature))},
      {"Evaluation", "knn-bank", "N",
       "knn: number of training images, drawn by --seed, that are searched for neighbours; 0: all", of_run("0")},
      {"Evaluation", "probe-epochs", "N", "linear: epochs of SGD on the features, with a cosine schedule",
       std::to_string(probe.epochs)},
      {"Evaluation", "probe-lr", "X", "linear: initial learning rate", shortest(probe.lr)}};
  for (Flag& flag : option_flags(Use::evaluate)) command.flags.push_back(std::move(flag));
  command.run = run_evaluate;
  return command;
}

}  // namespace ringtape::cli
