#pragma once
#include <vector>

#include "autograd/inference/steps.h"

namespace ringtape::inference {

// Where everything is for one number of images: views whose `data` is still to come, and one piece of memory for all
// results, in which those that are not needed at the same time lie in the same place.
class Plan {
 public:
  Plan(const Graph& graph, const std::vector<Step>& steps, int64_t images);

  int64_t bytes() const { return bytes_; }
  // Runs the steps on the images at `x` with `bytes()` bytes at `memory`; returns the result, which is there.
  View run(const std::vector<Step>& steps, const void* x, void* memory) const;

 private:
  struct Place {
    View view;
    int buffer;
    int64_t at;  // in bytes from the buffer's first; of a constant, the view has its data
  };
  Place place_of(const Graph& graph, const Value& v) const;
  View view_of(const Place& place, const void* x, void* memory) const;
  void lay_out(const Graph& graph, const std::vector<Step>& steps);

  int64_t images_, bytes_ = 0;
  std::vector<int64_t> begins_;               // of the buffers, in the memory; -1: elsewhere
  std::vector<std::vector<Place>> in_, out_;  // of each step
  Place y_;
};

}  // namespace ringtape::inference
