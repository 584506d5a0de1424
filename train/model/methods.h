#pragma once
#include "nn/ssl/method.h"
#include "train/data/loader.h"
#include "train/model/models.h"
#include "train/settings/options.h"

namespace ringtape {

// The method that the options ask for, on a backbone of their model. Throws UsageError with the nearest name, or where
// a setting does not fit it.
std::unique_ptr<nn::Method> make_method(const TrainOptions& options, const ModelSpec& backbone);

// Throws UsageError for settings that a self-supervised training by so many ranks could not keep.
void check_pretraining(const TrainOptions& options, int ranks);

}  // namespace ringtape
