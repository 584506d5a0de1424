#pragma once
#include <memory>
#include <string>

#include "core/fields.h"
#include "nn/sequential.h"

namespace ringtape::nn {

// A head: linear layers with an activation between them.
struct HeadOptions {
  int64_t hidden, out;          // widths of hidden layers and of the output
  std::string norm = "hidden";  // position of batch normalisation: see visit_projection
  int64_t layers = 2;
  bool bias = false;         // also in layers before batch normalisation
  bool transformer = false;  // GELU instead of ReLU, and weights begin as those of transformers
};
void visit_projection(Fields& f, HeadOptions& o);
void visit_prediction(Fields& f, HeadOptions& o);  // without `out` (the projection's), `layers` and `bias`

// in -> hidden -> ... -> out. Throws UsageError for an unknown norm.
std::unique_ptr<Sequential> make_head(int64_t in, const HeadOptions& options);
// A head that predicts one view's projection from another's.
std::unique_ptr<Sequential> make_prediction(const HeadOptions& projection, HeadOptions prediction);

}  // namespace ringtape::nn
