#include "core/recording.h"

#include <utility>

namespace ringtape {

static thread_local Recording* current_recording = nullptr;

Recording::Recording(Device device) : device_(device) { current_recording = this; }
Recording::~Recording() { current_recording = nullptr; }

Recording* Recording::current() { return current_recording; }

void at_each_launch(std::function<void()> f) {
  if (current_recording) current_recording->then(std::move(f));
  else f();
}

}  // namespace ringtape
