#include "train/settings/aliases.h"

#include <algorithm>

namespace ringtape {
namespace {

// clang-format off
const Alias kAliases[] = {
    {{"learning-rate", "base-learning-rate"}, "lr", ""},
    {{"blr"}, "base-lr", ""},
    {{"wd", "l2"}, "weight-decay", ""},
    {{"b", "bs", "batch", "global-batch-size", "train-batch-size"}, "batch-size", ""},
    {{"per-device-train-batch-size", "micro-batch-size"}, "batch-size-per-rank", ""},
    {{"a", "arch", "backbone", "model-name"}, "model", ""},
    {{"dataset", "data-set"}, "data", ""},
    {{"data-path", "data-root", "root", "dataset-dir", "d"}, "data-dir", ""},
    {{"j", "num-workers", "dataloader-num-workers"}, "workers", ""},
    {{"max-epochs", "num-epochs", "num-train-epochs", "n-epochs", "e"}, "epochs", ""},
    {{"opt", "optim"}, "optimizer", ""},
    {{"sched", "lr-scheduler", "lr-scheduler-type", "scheduler"}, "schedule", ""},
    {{"warmup", "lr-warmup-epochs"}, "warmup-epochs", ""},
    {{"warmup-steps", "num-warmup-steps"}, "warmup-epochs", "steps / steps per epoch; may be a fraction"},
    {{"lr-warmup-decay"}, "warmup-lr", ""},
    {{"min-lr", "eta-min", "lr-min"}, "final-lr", ""},
    {{"decay-epochs", "lr-step-size"}, "step-size", ""},
    {{"lr-steps", "decay-milestones"}, "milestones", ""},
    {{"lr-cycle-mul", "t-mult"}, "restart-mult", ""},
    {{"t-0", "lr-cycle-epochs"}, "restart-epochs", ""},
    {{"decay-rate", "lr-gamma"}, "gamma", ""},
    {{"smoothing"}, "label-smoothing", ""},
    {{"weighted-sampler", "balanced-sampler", "weighted-random-sampler", "oversample"}, "balanced-sampling", ""},
    {{"class-weight", "loss-weights", "pos-weight"}, "class-weights", ""},
    {{"drop", "drop-rate"}, "dropout", ""},
    {{"hflip", "horizontal-flip"}, "flip", ""},
    {{"img-size", "input-size", "resolution", "train-crop-size"}, "image-size", ""},
    {{"val-resize-size", "resize-size", "test-resize"}, "resize", ""},
    {{"train-interpolation", "val-interpolation", "resample"}, "interpolation", ""},
    {{"model-ema", "ema-decay", "model-ema-decay"}, "ema", "--ema 0.999"},
    {{"clip-grad", "gradient-clip-val", "max-grad-norm", "grad-clip"}, "clip-grad-norm", ""},
    {{"accumulate-grad-batches", "grad-accum-steps", "gradient-accumulation-steps"}, "accumulate", ""},
    {{"pretrained", "finetune", "initial-checkpoint", "init", "checkpoint"}, "weights", "--weights FILE"},
    {{"random-seed", "manual-seed", "seed-everything"}, "seed", ""},
    {{"cudnn-deterministic", "use-deterministic-algorithms"}, "deterministic", ""},
    {{"amp", "fp16", "bf16", "half", "use-amp", "mixed-precision", "amp-dtype"}, "precision", "--precision bf16"},
    {{"allow-tf32", "tf32", "float32-matmul-precision"}, "precision", "--precision tf32"},
    {{"gpus", "num-gpus", "ngpus", "world-size", "nproc-per-node", "nproc"}, "devices", ""},
    {{"gpu", "gpu-id", "cuda", "accelerator"}, "device", "--device cuda"},
    {{"num-nodes", "nnodes"}, "", "several machines: ringtape launch --nnodes N --node-rank R -n RANKS -- train ..."},
    {{"sync-batchnorm", "sync-bnorm", "syncbn"}, "sync-bn", ""},
    {{"dist-backend", "backend"}, "transport", ""},
    {{"output", "output-dir", "o", "experiment", "exp-name", "name", "default-root-dir", "save-dir", "log-dir"},
     "run", ""},
    {{"resume-from", "resume-from-checkpoint", "ckpt-path", "auto-resume"}, "resume", "--run NAME --resume"},
    {{"log-interval", "log-every-n-steps", "logging-steps", "print-freq", "p"}, "log-every", ""},
    {{"save-freq", "save-every", "checkpoint-freq"}, "checkpoint-every", ""},
    {{"save-steps"}, "checkpoint-steps", ""},
    {{"save-total-limit", "checkpoint-hist", "save-top-k"}, "keep", ""},
    {{"load-best-model-at-end"}, "export", "--export best"},
    {{"metric-for-best-model", "eval-metric", "monitor", "patience-by"}, "best-by", "--best-by loss"},
    {{"limit-val-batches", "limit-test-batches"}, "limit-eval-batches", ""},
    {{"val-check-interval", "eval-steps", "eval-interval"}, "val-every", "a number of steps"},
    {{"fast-dev-run"}, "limit-train-batches", "--epochs 1 --limit-train-batches 2 --limit-eval-batches 1"},
    {{"val-split", "val-fraction"}, "val-size", "a number of images"},
    {{"evaluate", "eval", "test-only"}, "", "weights are tested by ringtape evaluate RUN"},
    {{"overfit-batches"}, "", "not supported; use --epochs or --limit-train-batches"},
    {{"max-iters", "num-steps", "train-steps", "max-train-steps"}, "max-steps", ""},
    {{"patience-epochs", "early-stopping", "early-stop", "early-stopping-patience"}, "patience", ""},
    {{"mixup-alpha", "mixup-prob"}, "mixup", ""},
    {{"cutmix-alpha", "cutmix-prob"}, "cutmix", ""},
    {{"aa", "auto-augment", "autoaugment", "randaugment", "trivial-augment", "augmix"},
     "policy", "--policy randaugment or --policy trivialaugment"},
    {{"color-jitter"}, "jitter", "--jitter 1 --brightness 0.4 --contrast 0.4 --saturation 0.4 --hue 0"},
    {{"ra-magnitude"}, "policy-magnitude", ""},
    {{"scale", "crop-scale", "random-resized-crop"}, "crop-low", "--crop-low 0.08"},
    {{"reprob", "random-erase", "random-erasing"}, "erasing", ""},
    {{"drop-path-rate", "drop-path-prob", "stochastic-depth"}, "drop-path", ""},
    {{"freeze-layers", "freeze-backbone", "linear-probe"}, "freeze", "--freeze backbone"},
    {{"lr-head", "classifier-lr", "head-learning-rate"}, "head-lr", ""},
    {{"backbone-lr", "encoder-lr"}, "head-lr", "--lr is that of the backbone then"},
    {{"lr-layer-decay", "llrd", "layer-wise-lr-decay"}, "layer-decay", ""},
    {{"filter-bias-and-bn", "exclude-bias-n-norm-wd", "norm-weight-decay", "bias-weight-decay"}, "no-decay-norms", ""},
    {{"betas", "opt-betas"}, "beta1", "--beta1 0.9 --beta2 0.999"},
    {{"adam-beta1"}, "beta1", ""},
    {{"adam-beta2"}, "beta2", ""},
    {{"eps", "opt-eps", "adam-epsilon"}, "epsilon", ""},
    {{"compile", "torchcompile", "channels-last"}, "",
     "not needed: kernels are compiled, and images are always channels_last"},
    {{"wandb", "log-wandb", "report-to", "tensorboard", "logger"},
     "", "not needed: each run writes metrics.jsonl, metrics.csv and an events file for TensorBoard"},
};
// clang-format on

}  // namespace

std::span<const Alias> aliases() { return kAliases; }

const Alias* find_alias(std::string_view name) {
  const auto same = [&](std::string_view other) {
    return std::equal(name.begin(), name.end(), other.begin(), other.end(),
                      [](char a, char b) { return (a == '_' ? '-' : a) == b; });
  };
  for (const Alias& alias : kAliases)
    if (std::any_of(alias.names.begin(), alias.names.end(), same)) return &alias;
  return nullptr;
}

std::string alias_text(const Alias& alias) {
  const std::string hint(alias.hint);
  if (alias.flag.empty()) return ": " + hint;
  const bool typed = hint.starts_with("--");
  return "; did you mean " + (typed ? hint : "--" + std::string(alias.flag)) + "?" +
         (typed || hint.empty() ? "" : " (" + hint + ")");
}

}  // namespace ringtape
