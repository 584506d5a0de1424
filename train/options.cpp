#include "train/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "comm/reduction.h"
#include "core/env.h"
#include "core/runtime.h"
#include "nn/ssl/method.h"
#include "train/data/dataset.h"
#include "train/methods.h"
#include "train/models.h"
#include "train/optim/schedule.h"
#include "train/optimizers.h"
#include "train/suggest.h"

namespace ringtape {
namespace {

using O = TrainOptions;

template <class Registry>
std::vector<std::string> names(const Registry& registry) {
  std::vector<std::string> out;
  for (const auto& entry : registry) out.emplace_back(entry.name);
  return out;
}
std::vector<std::string> model_names() { return names(models()); }
std::vector<std::string> precision_names() { return {"f32", "bf16", "f16"}; }
std::vector<std::string> dataset_names() { return names(datasets()); }
std::vector<std::string> strategy_names() { return {"auto", "single", "dp", "ddp", "ddp2"}; }
std::vector<std::string> reduction_names() { return names(comm::reductions()); }
std::vector<std::string> transport_names() { return {"auto", "shm", "tcp", "mpi", "nccl"}; }
std::vector<std::string> method_names() { return names(nn::methods()); }
std::vector<std::string> norm_names() { return {"method", "none", "hidden", "all", "plain"}; }
std::vector<std::string> statistics_names() { return {"biased", "unbiased", "exact"}; }
std::vector<std::string> normalize_names() { return {"dataset", "imagenet"}; }
std::vector<std::string> schedule_by_names() { return {"step", "epoch"}; }
std::vector<std::string> exported_names() { return {"last", "best"}; }
std::vector<std::string> lr_scale_names() { return {"none", "linear", "sqrt"}; }

constexpr double kMost = 1e9;  // of any count
constexpr Range kPositive{1, kMost}, kCount{0, kMost}, kReal{0}, kFraction{0, 1, true}, kAboveZero{.low = 0, .above_low = true};

// clang-format off
const Option kOptions[] = {
    {"Model", "model", &O::model, "NAME", "network to train", {}, model_names, "mlp; resnet18 for imagefolder", true},
    {"Model", "hidden", &O::hidden, "N", "width of the mlp's hidden layer", kPositive, nullptr, nullptr, true},
    {"Model", "width", &O::width, "N",
     "channels of a ResNet's first stage; the last has 8 times as many", {1, 1024}, nullptr, nullptr, true},
    {"Model", "no-stem-relu", &O::no_stem_relu, "",
     "no ReLU behind a ResNet's first convolution, as in lightly's benchmark", {}, nullptr, nullptr, true},
    {"Model", "stem-padding", &O::stem_padding, "N",
     "zeros around an image at a ResNet's first convolution, where that is 3x3; solo-learn has 2", {0, 8}, nullptr, nullptr, true},
    {"Model", "dropout", &O::dropout, "P", "probability of zeroing a hidden unit in training", kFraction, nullptr, nullptr, true},
    {"Model", "weights", &O::weights, "FILE",
     "safetensors file of the initial weights; one without the last layer leaves that layer random", {}, nullptr, "random ones"},

    {"Method", "method", &O::method, "NAME", "what is learnt without labels", {}, method_names, "none"},
    {"Method", "temperature", &O::temperature, "X", "that similarities are divided by", kAboveZero, nullptr,
     "simclr 0.5, moco and swav 0.1"},
    {"Method", "projection-hidden", &O::projection_hidden, "N",
     "width of the projection within", kPositive, nullptr, "moco, simclr, swav 512, byol 1024, others 2048"},
    {"Method", "projection-dim", &O::projection_dim, "N",
     "width of what comes out of it", kPositive, nullptr, "moco, simclr, swav 128, byol 256, others 2048"},
    {"Method", "projection-layers", &O::projection_layers, "N", "linear layers of it", kPositive, nullptr, "2"},
    {"Method", "projection-norm", &O::projection_norm, "WHERE",
     "its batch normalisation: nowhere, behind all layers but the last, behind all, or so without weights in the last (plain)", {},
     norm_names},
    {"Method", "head-bias", &O::head_bias, "", "linear layers of heads have a bias even where batch normalisation follows"},
    {"Method", "prediction-hidden", &O::prediction_hidden, "N",
     "simsiam, byol: width of the prediction within", kPositive, nullptr, "512, 1024"},
    {"Method", "prediction-norm", &O::prediction_norm, "WHERE", "its batch normalisation", {}, norm_names},
    {"Method", "fixed-prediction-lr", &O::fixed_prediction_lr, "",
     "simsiam, byol: the prediction learns at the highest rate throughout, without schedule and warm-up"},
    {"Method", "momentum-encoder", &O::momentum_encoder, "X", "moco, byol: part of the teacher's weights that stays in a step", {0, 1}},
    {"Method", "momentum-encoder-end", &O::momentum_encoder_end, "X",
     "and what it becomes by the end, along a cosine; -1: it stays", {-1, 1}},
    {"Method", "queue", &O::queue, "N",
     "moco: keys of earlier batches that are negatives; swav: rows that codes are balanced with", kCount,
     nullptr, "moco 4096, swav 0"},
    {"Method", "queue-per-view", &O::queue_per_view, "", "moco, swav: each of the two views has a queue of its own, of that size"},
    {"Method", "enqueue-between", &O::enqueue_between, "",
     "moco: keys of one half of the loss are negatives in the other, as lightly has it"},
    {"Method", "bn-splits", &O::bn_splits, "N", "moco: parts of a batch that are normalised apart; not with --sync-bn", kPositive},
    {"Method", "barlow-lambda", &O::barlow_lambda, "X", "barlow_twins: weight of what is off the diagonal", kReal},
    {"Method", "barlow-statistics", &O::barlow_statistics, "WHICH",
     "barlow_twins: outputs are standardised by variance + 1e-5, by n - 1 as lightly did until 2023, or by all ranks' variance", {},
     statistics_names},
    {"Method", "loss-scale", &O::loss_scale, "X", "barlow_twins: factor of the loss", kReal},
    {"Method", "prototypes", &O::prototypes, "N", "swav: how many", kPositive},
    {"Method", "freeze-prototypes", &O::freeze_prototypes, "N", "swav: epochs in which they stay as they are", kCount},
    {"Method", "sinkhorn-epsilon", &O::sinkhorn_epsilon, "X", "swav: entropy of the codes", {1e-6, kMost}},
    {"Method", "sinkhorn-iterations", &O::sinkhorn_iterations, "N", "swav: of balancing them", kPositive},
    {"Method", "queue-epoch", &O::queue_epoch, "N", "swav: epochs before the queue counts", kCount},
    {"Method", "gather-distributed", &O::gather_distributed, "",
     "the loss compares with, or is balanced over, the outputs of all ranks (simclr, barlow_twins, swav, vicreg)"},

    {"Views", "views", &O::views, "N", "random views of an image, of its size; methods but swav use two", {2, 64}},
    {"Views", "small-views", &O::small_views, "N",
     "swav: further views, of a smaller part and size, that predict the codes of the first two", {0, 64}},
    {"Views", "small-view-size", &O::small_view_size, "N", "their height and width", {1, 4096}},
    {"Views", "small-crop-low", &O::small_crop_low, "X", "least part of an image's area that they show", {1e-4, 1}},
    {"Views", "small-crop-high", &O::small_crop_high, "X", "most of it", {1e-4, 1}},
    {"Views", "crop-low", &O::crop_low, "X", "least part of an image's area that a view shows", {1e-4, 1}},
    {"Views", "crop-high", &O::crop_high, "X", "most of it", {1e-4, 1}},
    {"Views", "view-flip", &O::view_flip, "P", "probability of left becoming right", {0, 1}},
    {"Views", "jitter", &O::jitter, "P", "probability of changing the colours by what follows, in random order", {0, 1}},
    {"Views", "brightness", &O::brightness, "X", "by a factor of 1 - X to 1 + X", {0, 100}},
    {"Views", "contrast", &O::contrast, "X", "by a factor of 1 - X to 1 + X", {0, 100}},
    {"Views", "saturation", &O::saturation, "X", "by a factor of 1 - X to 1 + X", {0, 100}},
    {"Views", "hue", &O::hue, "X", "by -X to X turns", {0, 0.5}},
    {"Views", "gray", &O::gray, "P", "probability of gray", {0, 1}},
    {"Views", "blur", &O::blur, "P", "probability of a Gaussian blur of 0.1 to 2 pixels", {0, 1}},
    {"Views", "blur-second", &O::blur_second, "P", "the same of the second view; -1: as of the first", {-1, 1}},
    {"Views", "solarize-second", &O::solarize_second, "P", "probability, in the second view, that bright levels are inverted", {0, 1}},

    {"Evaluation", "knn-every", &O::knn_every, "N", "epochs between kNN tests of the features; 0: at the end alone", kCount},
    {"Evaluation", "knn-k", &O::knn_k, "N", "kNN: neighbours that vote", kPositive},
    {"Evaluation", "knn-temperature", &O::knn_temperature, "X", "kNN: similarities count exp(cosine / X)", {1e-6, kMost}},
    {"Evaluation", "knn-bank", &O::knn_bank, "N",
     "kNN: training images, drawn by --seed, that neighbours are looked for in; 0: all", kCount},
    {"Evaluation", "online-probe", &O::online_probe, "", "train a linear layer on the features along with them, and test it where kNN is"},

    {"Data", "data", &O::data, "NAME", "data set", {}, dataset_names, nullptr, true},
    {"Data", "data-dir", &O::data_dir, "DIR", "folder of its files", {}, nullptr, "RINGTAPE_DATA_DIR, else ./data", true},
    {"Data", "train-size", &O::train_size, "N",
     "shapes: images to generate for training and validation", kPositive, nullptr, nullptr, true},
    {"Data", "test-size", &O::test_size, "N", "shapes: images to generate for testing", kPositive, nullptr, nullptr, true},
    {"Data", "val-size", &O::val_size, "N",
     "training images held out for validation; 0: none", kCount, nullptr, "5000 of 60,000, else a tenth"},
    {"Data", "normalize", &O::normalize, "WHICH",
     "images by mean and deviation of the data set, or of ImageNet", {}, normalize_names, nullptr, true},
    {"Data", "image-size", &O::image_size, "N",
     "imagefolder: resize and crop images to N x N", {1, 4096}, nullptr, "that of all images, else 32", true},

    {"Augmentation", "crop-padding", &O::crop_padding, "N", "zeros on each side of training images, then cropped at random", {0, 4096}},
    {"Augmentation", "flip", &O::flip, "", "flip half of the training images left to right"},
    {"Augmentation", "rotation", &O::rotation, "DEG", "turn training images by up to so many degrees to either side", {0, 180}},
    {"Augmentation", "cutout", &O::cutout, "N", "set a square of side N in each training image to the mean", {0, 4096}},

    {"Optimizer", "epochs", &O::epochs, "N", "passes over the training images", kPositive},
    {"Optimizer", "batch-size", &O::batch_size, "N", "images of one step", kPositive},
    {"Optimizer", "accumulate", &O::accumulate, "N",
     "parts that a batch is taken in, one after the other: less memory, the same step", kPositive},
    {"Optimizer", "optimizer", &O::optimizer, "NAME", "update rule", {}, optimizer_names},
    {"Optimizer", "lr", &O::lr, "X", "learning rate, at its peak", kReal},
    {"Optimizer", "base-lr", &O::base_lr, "X",
     "instead of --lr: that of 256 images; --lr becomes X * --batch-size / 256", kAboveZero, nullptr, "none"},
    {"Optimizer", "momentum", &O::momentum, "X", "sgd, lars: momentum", kFraction},
    {"Optimizer", "nesterov", &O::nesterov, "", "sgd, lars: Nesterov's momentum"},
    {"Optimizer", "weight-decay", &O::weight_decay, "X", "L2 penalty (sgd, adam, lars) or decoupled decay (adamw)", kReal},
    {"Optimizer", "lars-eta", &O::lars_eta, "X", "lars: length of a parameter's step beside its own, before --lr", kReal},
    {"Optimizer", "lars-clip", &O::lars_clip, "", "lars: take the smaller one of --lr and that length, not their product"},
    {"Optimizer", "clip-grad-norm", &O::clip_grad_norm, "X", "longest that all gradients together may be; 0: any length", kReal},
    {"Optimizer", "ema", &O::ema, "DECAY", "average the weights, keeping this part a step, and test those; 0: do not", kFraction},
    {"Optimizer", "label-smoothing", &O::label_smoothing, "X", "part of the target spread evenly over all classes", kFraction},

    {"Schedule", "schedule", &O::schedule, "NAME", "course of the learning rate", {}, schedule_names},
    {"Schedule", "step-size", &O::step_size, "N", "step: epochs between drops", kPositive},
    {"Schedule", "gamma", &O::gamma, "X", "step: factor of a drop", kReal},
    {"Schedule", "warmup-epochs", &O::warmup_epochs, "X", "epochs of linear rise, step by step (may be a fraction)", kReal},
    {"Schedule", "warmup-lr", &O::warmup_lr, "X", "learning rate that the rise begins above", kReal},
    {"Schedule", "final-lr", &O::final_lr, "X", "cosine: learning rate that it ends at", kReal},
    {"Schedule", "schedule-by", &O::schedule_by, "NAME",
     "cosine: whether the learning rate changes with each step, or with each epoch as PyTorch's CosineAnnealingLR", {}, schedule_by_names},

    {"Execution", "device", &O::device, "DEVICE", "auto, cpu, cpu:N, cuda or cuda:N", {}, nullptr, nullptr, true},
    {"Execution", "threads", &O::threads, "N", "threads of the CPU kernels", {1, 1024}, nullptr, "RINGTAPE_THREADS, else all cores", true},
    {"Execution", "workers", &O::workers, "N", "background threads that prepare batches; 0: none", {0, 256}, nullptr, nullptr, true},
    {"Execution", "seed", &O::seed, "N", "of initial weights, order, dropout and generated images", {0, 9e15}, nullptr, nullptr, true},
    {"Execution", "precision", &O::precision, "TYPE",
     "of matrix products and activations; weights and sums stay f32", {}, precision_names, nullptr, true},
    {"Execution", "deterministic", &O::deterministic, "", "the same bytes each time; CPU kernels are so anyway, for any --threads"},
    {"Execution", "limit-train-batches", &O::limit_train_batches, "N", "steps an epoch at most; 0: all", kCount},
    {"Execution", "limit-eval-batches", &O::limit_eval_batches, "N",
     "batches of 500 images a validation or test at most; 0: all", kCount, nullptr, nullptr, true},

    {"Parallel", "strategy", &O::strategy, "NAME",
     "single, dp (this process on several devices), ddp (a rank a device), ddp2 (ddp over processes, dp in each), or auto: ddp or single",
     {}, strategy_names},
    {"Parallel", "devices", &O::devices, "N",
     "devices of this machine: of dp and ddp2 in each process, of ddp a rank each, which are started where no launcher has", {1, 4096}},
    {"Parallel", "gpu-ids", &O::gpu_ids, "LIST",
     "these GPUs, as in 2,3: of ddp the r-th for rank r of a machine", {}, nullptr, "cuda:0, cuda:1 ..."},
    {"Parallel", "transport", &O::transport, "NAME", "between ranks", {}, transport_names},
    {"Parallel", "sync-bn", &O::sync_bn, "", "batch normalisation over the samples of all ranks or devices"},
    {"Parallel", "dp-persistent", &O::dp_persistent, "",
     "dp, ddp2: replicas stay, and get what has changed alone, not everything at each step"},
    {"Parallel", "batch-size-per-rank", &O::batch_size_per_rank, "N",
     "images of one rank's part of a step; --batch-size is then that by the ranks", kPositive, nullptr, "--batch-size is of all ranks"},
    {"Parallel", "lr-scale", &O::lr_scale, "RULE",
     "multiply --lr by the number of ranks (linear), its root (sqrt) or not (none)", {}, lr_scale_names},
    {"Parallel", "bucket-mb", &O::bucket_mb, "X", "MiB of gradients that are sent together while others are still made", {1e-6, 1e6}},
    {"Parallel", "no-overlap", &O::no_overlap, "", "send all gradients at once behind backward, to see what sending them meanwhile gains"},
    {"Parallel", "gradient-reduction", &O::gradient_reduction, "NAME",
     "between ranks: sum, in bf16 or f16 (half the bytes), or powersgd (of low rank, the rest goes with later steps; begins anew on "
      "--resume)",
     {}, reduction_names},
    {"Parallel", "powersgd-rank", &O::powersgd_rank, "N", "of the matrices that powersgd sends", kPositive},
    {"Parallel", "comm-timeout", &O::comm_timeout, "SECONDS",
     "after which a rank that others wait for ends the training, with what each is at; a rank that dies ends it at once", {0.001, 1e8}},

    {"Run", "run", &O::run, "NAME", "run directory: a name below runs/, or a path with a /", {}, nullptr, "MODEL-DATA-TIME", false, false},
    {"Run", "overwrite", &O::overwrite, "", "replace an earlier run of that name", {}, nullptr, nullptr, false, false},
    {"Run", "resume", &O::resume, "",
     "continue the run of that name from its newest checkpoint; start it if there is none", {}, nullptr, nullptr, false, false},
    {"Run", "checkpoint-every", &O::checkpoint_every, "N",
     "epochs between checkpoints; 0: one when stopped by SIGTERM or SIGINT alone", kCount},
    {"Run", "checkpoint-steps", &O::checkpoint_steps, "N", "steps between further checkpoints within an epoch; 0: none", kCount},
    {"Run", "keep", &O::keep, "N", "newest checkpoints that stay, besides that of the best validation", kPositive},
    {"Run", "export", &O::exported, "WHICH",
     "weights that the final test and exported/ are of: the last, or those of the best validation (without labels: best kNN test)",
     {}, exported_names},
    {"Run", "log-every", &O::log_every, "N", "steps between lines of metrics within an epoch; 0: none", kCount},
    {"Run", "trace", &O::trace, "FILE",
     "write what every rank does in one step to FILE.json (chrome://tracing, Perfetto) and FILE.svg", {}, nullptr, nullptr, false, false},
    {"Run", "trace-step", &O::trace_step, "N", "which step, counted from 1", kPositive, nullptr, nullptr, false, false},
    {"Run", "json", &O::json, "", "print metrics as JSON lines instead of text", {}, nullptr, nullptr, true, false},
};
// clang-format on

// By the ranges of RFC 3629.
bool is_utf8(const std::string& s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0; };
  for (size_t i = 0; i < s.size();) {
    const int first = byte(i), second = byte(i + 1);
    const size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    const int low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80, high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (length == 0 || (length > 1 && (second < low || second > high))) return false;
    for (size_t k = 2; k < length; ++k)
      if (byte(i + k) >> 6 != 2) return false;
    i += length;
  }
  return true;
}

template <class T>
T parse_number(const Option& option, const std::string& text, const std::string& origin) {
  constexpr bool whole = std::is_integral_v<T>;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const Range& r = option.range;
  const double x = double(value);
  const bool valid = error == std::errc{} && end == text.data() + text.size() && std::isfinite(x) &&
                     (r.above_low ? x > r.low : x >= r.low) && (r.below_high ? x < r.high : x <= r.high);
  if (valid) return value;
  std::string expected = whole ? "a whole number" : "a number";
  const auto bound = [](double b) { return std::abs(b) < 1e15 && b == std::floor(b) ? std::to_string(int64_t(b)) : shortest(b); };
  if (std::isfinite(r.low)) expected += (r.above_low ? " above " : " of at least ") + bound(r.low);
  if (std::isfinite(r.high)) expected += (r.below_high ? " and below " : " and at most ") + bound(r.high);
  const bool unsaid = option.automatic && text == option_text(TrainOptions(), option);
  detail::fail<UsageError>(origin, ": expected ", expected, ", got '", text, "'",
                           unsaid ? concat("; leave it out for the default: ", option.automatic) : "");
}

}  // namespace

std::span<const Option> train_options() { return kOptions; }
std::vector<std::string> optimizer_names() { return names(optimizers()); }
std::vector<std::string> schedule_names() { return names(schedules()); }
bool concerns(const Option& option, bool self_supervised) {
  static constexpr std::string_view kSupervised[] = {"val-size", "dropout", "weights", "label-smoothing", "accumulate"};
  const std::string_view group = option.group;
  if (group == "Method" || group == "Views" || group == "Evaluation") return self_supervised;
  if (!self_supervised) return true;
  return group != "Augmentation" && std::find(std::begin(kSupervised), std::end(kSupervised), option.name) == std::end(kSupervised);
}
bool may_change(const Option& option) {
  static constexpr std::string_view kMayChange[] = {
      "weights", "data-dir", "epochs", "knn-every", "knn-k", "knn-temperature", "knn-bank", "device", "threads", "workers",
      "limit-eval-batches", "strategy", "devices", "gpu-ids", "transport", "bucket-mb", "no-overlap", "comm-timeout", "dp-persistent",
      "checkpoint-every", "checkpoint-steps", "keep", "export", "log-every"};
  return std::find(std::begin(kMayChange), std::end(kMayChange), option.name) != std::end(kMayChange);
}
bool of_rank(const Option& option) {
  static constexpr std::string_view kOfRank[] = {"data-dir", "device", "threads", "workers", "strategy",
                                                  "devices", "gpu-ids", "transport", "comm-timeout", "dp-persistent"};
  return std::find(std::begin(kOfRank), std::end(kOfRank), option.name) != std::end(kOfRank);
}
bool is_switch(const Option& option) { return std::holds_alternative<bool TrainOptions::*>(option.member); }

void set_option(TrainOptions& options, const Option& option, const std::string& text,
                const std::string& origin) {
  if (option.choices) {
    const std::vector<std::string> known = option.choices();
    if (std::find(known.begin(), known.end(), text) == known.end())
      throw UsageError(origin + ": " + unknown("value", text, known));
  }
  std::visit(
      [&](auto member) {
        using T = std::remove_reference_t<decltype(options.*member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          options.*member = text;
        } else if constexpr (std::is_same_v<T, bool>) {
          RT_CHECK_AS(UsageError, text == "true" || text == "false", origin,
                      ": expected true or false, got '", text, "'");
          options.*member = text == "true";
        } else {
          options.*member = parse_number<T>(option, text, origin);
        }
      },
      option.member);
}

void set_recorded(TrainOptions& options, const Option& option, const std::string& text, const std::string& origin) {
  const TrainOptions unsaid;
  if (!option.automatic || text != option_text(unsaid, option)) return set_option(options, option, text, origin);
  std::visit([&](auto member) { options.*member = unsaid.*member; }, option.member);
}

std::string option_text(const TrainOptions& options, const Option& option) {
  return std::visit([&](auto member) { return text(options.*member); }, option.member);
}

void settle_lr(TrainOptions& options, bool gives_lr, bool gives_base_lr, const std::string& origin) {
  constexpr double kImages = 256;  // that a base learning rate is for
  RT_CHECK_AS(UsageError, !gives_lr || !gives_base_lr, origin, "--lr and --base-lr: one makes the other; give one of them");
  if (gives_lr) options.base_lr = 0;
  if (options.base_lr > 0) options.lr = options.base_lr * double(options.batch_size) / kImages;
}

void settle_model(TrainOptions& options) {
  if (options.model.empty()) options.model = find_dataset(options.data).model;
}

double peak_lr(const TrainOptions& options, int ranks) {
  return options.lr * (options.lr_scale == "linear" ? ranks : options.lr_scale == "sqrt" ? std::sqrt(double(ranks)) : 1);
}

TrainOptions resolve(TrainOptions options, int ranks) {
  if (options.device == "auto") options.device = available({DeviceType::cuda, 0}) ? "cuda:0" : "cpu:0";
  const Device device = parse_device(options.device);
  runtime(device);
  options.device = device.str();
  if (options.threads == 0) options.threads = threads();
  const DatasetEntry& data = find_dataset(options.data);
  settle_model(options);
  if (options.data_dir.empty()) options.data_dir = env::data_dir();
  if (data.generated) options.data_dir.clear();
  if (!options.data_dir.empty())
    options.data_dir = std::filesystem::absolute(options.data_dir).lexically_normal().string();
  if (!options.weights.empty()) options.weights = std::filesystem::absolute(options.weights).lexically_normal().string();
  RT_CHECK_AS(UsageError, !options.nesterov || ((options.optimizer == "sgd" || options.optimizer == "lars") && options.momentum > 0),
              "--nesterov: needs --optimizer sgd or lars and a --momentum above 0");
  RT_CHECK_AS(UsageError, options.warmup_epochs <= double(options.epochs), "--warmup-epochs ",
              options.warmup_epochs, ": longer than the ", options.epochs, " epochs of the training");
  RT_CHECK_AS(UsageError, !options.resume || !options.run.empty(), "--resume: needs --run, the run to continue");
  RT_CHECK_AS(UsageError, !options.resume || !options.overwrite, "--resume and --overwrite: one continues the run, the other replaces it");
  RT_CHECK_AS(UsageError, !options.sync_bn || options.strategy != "ddp2",
              "--sync-bn: not over processes that have several devices each; use --strategy ddp");
  if (options.batch_size_per_rank > 0) options.batch_size = options.batch_size_per_rank * ranks;
  RT_CHECK_AS(UsageError, options.base_lr == 0 || options.lr_scale == "none", "--lr-scale ", options.lr_scale,
              ": --base-lr grows with the batch of all ranks already; leave one of them");
  settle_lr(options, false, false, "");
  RT_CHECK_AS(UsageError, options.batch_size >= ranks, "--batch-size ", options.batch_size, ": fewer images than the ", ranks, " ranks");
  RT_CHECK_AS(UsageError, options.accumulate <= options.batch_size, "--accumulate ", options.accumulate, ": more parts than the ",
              options.batch_size, " images of --batch-size");
  RT_CHECK_AS(UsageError, options.exported == "last" || options.checkpoint_every > 0,
              "--export best: with --checkpoint-every 0 the best weights are not kept; give it 1 or more");
  if (!options.method.empty()) check_pretraining(options, ranks);
  for (const Option& option : kOptions)
    RT_CHECK_AS(UsageError, !option.recorded || is_utf8(option_text(options, option)), "--", option.name,
                ": is not UTF-8, which config.toml could not hold; give the folder a link of another name");
  return options;
}

}  // namespace ringtape
