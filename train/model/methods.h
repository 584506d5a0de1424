#pragma once
#include "nn/ssl/method.h"
#include "train/data/loader.h"
#include "train/model/models.h"
#include "train/settings/options.h"

namespace ringtape {

// The method of the options, on a backbone of their model. Throws UsageError with the nearest name, or if a setting
// does not fit the method.
std::unique_ptr<nn::Method> make_method(const TrainOptions& options, const ModelSpec& backbone);

// Throws UsageError for settings that do not work for a self-supervised run on `ranks` ranks.
void check_pretraining(const TrainOptions& options, int ranks);

}  // namespace ringtape
