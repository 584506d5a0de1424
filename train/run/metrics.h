#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ringtape {

// The results of a pass over a split; fields that do not apply are empty. Accuracies are in [0, 1], times in seconds;
// images_per_s is over the whole pass.
struct Metrics {
  // "train", "val" or "test"; "knn": kNN on features; "probe": the linear layer on features; "train_step": one step.
  std::string split;
  int64_t epoch = 0;                          // 1 for the first
  int64_t step = 0;                           // optimizer steps so far
  int64_t images = 0, steps = 0;              // of the pass; not written to the files
  std::optional<double> loader_images_per_s;  // what the loader could make at most; not written to the files
  std::optional<double> left_s;  // remaining time of the run, estimated from its first epoch; not written to the files
  bool uneven = false;           // whether classes have very different numbers of images; not written to the files
  std::optional<double> loss, top1, top5, lr, images_per_s, seconds;
  std::optional<double> data_s, forward_s, backward_s, optimizer_s;  // parts of a training pass
  std::optional<double> peak_bytes;             // memory of tensors on a device, maximum over ranks
  std::optional<double> grad_norm, loss_scale;  // of a step
  std::optional<double> spread;                 // of a self-supervised method's outputs (nn/loss/spread.h)
  std::optional<double> balanced;               // the mean of the classes' accuracies (train/evaluation/class_recall.h)
  std::optional<double> ranks;                  // if there are several; then, for rank 0:
  // Bytes passed to all_reduce or sent between devices; on CPUs also the seconds in transit and the seconds waited.
  std::optional<double> comm_bytes, comm_s, exposed_s;
};

}  // namespace ringtape
