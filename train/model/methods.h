#pragma once
#include "nn/ssl/method.h"
#include "train/data/loader.h"
#include "train/data/views.h"
#include "train/model/models.h"

namespace ringtape {

// What a method is made from.
struct MethodPlan {
  const Selection& method;
  const Selection& backbone;  // a model
  const ViewOptions& views;
  bool sync_bn = false;                        // whether batch normalisation uses the samples of all ranks
  bool probe = false;                          // whether a linear classifier is trained beside it
  std::function<void(nn::Module&)> load = {};  // gives a new backbone its initial weights; null: random ones
};

// The method, on a backbone made by `spec`. Throws UsageError with the nearest name, or if a setting does not fit the
// method.
std::unique_ptr<nn::Method> make_method(const MethodPlan& plan, const ModelSpec& spec);

}  // namespace ringtape
