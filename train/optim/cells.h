#pragma once
#include <vector>

#include "core/part.h"
#include "core/shape.h"

namespace ringtape {

// The cells of a parameter: parts of its elements that follow one another, whole rows of its first axis, as many as
// have 4,096 elements together, at least one; a row of more than 65,536 elements is several. They depend on the shape
// alone. Sums over parameters are made of those of cells, so that they have the same bits wherever a cell is summed.
std::vector<Part> cells_of(const Shape& shape);

}  // namespace ringtape
