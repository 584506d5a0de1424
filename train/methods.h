#pragma once
#include "nn/ssl/method.h"
#include "train/data/loader.h"
#include "train/models.h"
#include "train/options.h"

namespace ringtape {

// The method that the options ask for, on a backbone of their model. Throws UsageError with the nearest name, or where a setting does not
// fit it.
std::unique_ptr<nn::Method> make_method(const TrainOptions& options, const ModelSpec& backbone);

// Those there are: the six of lightly's table of distributed training in its order, then others.
std::vector<std::string> all_methods();
// Whether --gather-distributed makes a difference to it.
bool can_gather(const std::string& method);

// How its views are made, one after the other.
std::vector<ViewAugmentation> views_of(const TrainOptions& options);

// Throws UsageError for settings that a self-supervised training by so many ranks could not keep.
void check_pretraining(const TrainOptions& options, int ranks);
void check_method_name(const std::string& name);  // throws UsageError with the nearest one

}  // namespace ringtape
