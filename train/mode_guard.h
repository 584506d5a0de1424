#pragma once
#include "nn/module.h"

namespace ringtape {

// A module's mode, training or not, for as long as it lives; then the one there was.
class ModeGuard {
 public:
  ModeGuard(nn::Module& model, bool training) : model_(model), was_(model.training()) { model_.train(training); }
  ~ModeGuard() { model_.train(was_); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  nn::Module& model_;
  bool was_;
};

}  // namespace ringtape
