#pragma once
#include "core/part.h"
#include "core/tensor.h"
#include "train/evaluation/metrics.h"
#include "train/loop/objective.h"
#include "train/loop/riders.h"

// What the parts of a step share.
namespace ringtape {

Tensors slice_rows(const Tensors& images, const Part& rows);
// What backward() begins from; moved in, nothing else keeps its graph.
Tensor total_of(Outcome part);
// The numbers of samples that are right; waits for the device.
Tally::Totals count_right(const Tensors& logits, const Tensor& y);
Riders with_right(Riders riders, const Tally::Totals& right);
Tally::Totals right_of(const Riders& riders);

void copy_all(const Tensors& to, const Tensors& from);
Tensors clones(const Tensors& tensors);

}  // namespace ringtape
