#pragma once
#include <memory>
#include <string>

#include "nn/sequential.h"

namespace ringtape::nn {

// Where a head has batch normalisation: nowhere, behind all layers but the last, behind all, or behind all with neither weight nor bias
// in the last, as in SimSiam's paper.
enum class HeadNorm : uint8_t { none, hidden, all, plain };

// A head: linear layers with ReLU between them. Zero means what the method has by itself.
struct HeadOptions {
  int64_t hidden = 0, out = 0;
  int64_t layers = 0;
  std::string norm;    // "none", "hidden", "all", "plain"; empty: the method's own
  bool bias = false;   // of layers that batch normalisation follows, too
};

// What a method has where HeadOptions say nothing.
struct HeadDefaults {
  int64_t hidden, out;
  HeadNorm norm;
};
HeadNorm parse_head_norm(const std::string& name);  // throws UsageError

// in -> hidden -> ... -> out.
std::unique_ptr<Sequential> make_head(int64_t in, const HeadOptions& options, const HeadDefaults& defaults);
int64_t head_width(const HeadOptions& options, const HeadDefaults& defaults);  // of what comes out

}  // namespace ringtape::nn
