#pragma once
#include "nn/module.h"

namespace ringtape::nn {

// Sets a module's mode (training or evaluation) while it lives; then restores the previous one.
class ModeGuard {
 public:
  ModeGuard(Module& model, bool training) : model_(model), was_(model.training()) { model_.train(training); }
  ~ModeGuard() { model_.train(was_); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  Module& model_;
  bool was_;
};

}  // namespace ringtape::nn
