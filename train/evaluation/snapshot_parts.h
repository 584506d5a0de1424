#pragma once
#include <vector>

#include "comm/process_group.h"
#include "nn/module.h"
#include "train/data/loader.h"
#include "train/evaluation/features.h"
#include "train/evaluation/snapshot.h"

// The parts of a snapshot, each filled where what it shows has been computed anyway. Images of more than kLargestSide
// pixels are shown smaller.
namespace ringtape {

inline constexpr int64_t kLargestSide = 96;

// The confusion, and some of the samples with their predictions, from outputs (B, C) on cpu:0 of a batch each. The
// ranks of the group have the outputs of their `samples`: a collective; only rank 0 shows samples, of its own ones.
void add_predictions(Snapshot& snapshot, const Dataset& data, const std::vector<int64_t>& samples,
                     const Tensors& outputs, comm::ProcessGroup& group);

// The map of the queries' features, and for some queries their nearest neighbours in the bank, whose images are those
// of `queried` of `test` and `banked` of `train`.
void add_features(Snapshot& snapshot, const Dataset& test, const std::vector<int64_t>& queried, const Features& queries,
                  const Dataset& train, const std::vector<int64_t>& banked, const Features& bank);

// For some of the samples the views that `config` gives them in this epoch.
void add_views(Snapshot& snapshot, const Dataset& data, std::vector<int64_t> samples, LoaderConfig config,
               int64_t epoch);

// The first layer's filters, if they look at images of this many pixels' channels: those of a convolution of 1 or 3
// channels, or of a linear layer of images of this shape (H, W, C).
void add_filters(Snapshot& snapshot, nn::Module& network, const Shape& image);

}  // namespace ringtape
