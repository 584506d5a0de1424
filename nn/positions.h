#pragma once
#include <array>

#include "core/tensor.h"

// Positions (1, extra + rows columns, D) of a grid of patches, row by row, behind `extra` tokens that have none.
namespace ringtape::nn {

using Grid = std::array<int64_t, 2>;  // rows, columns

// As positions of another grid, by the bicubic interpolation with antialiasing that timm uses. Differentiable.
Tensor resampled_positions(const Tensor& positions, int64_t extra, const Grid& from, const Grid& to);

// Sines and cosines of the column, then of the row, with wavelengths from 2 pi to 20000 pi: those of MAE (He et al.,
// "Masked autoencoders are scalable vision learners", 2022). f32; zeros for the extra tokens. Throws UsageError unless
// D is a multiple of 4.
Tensor sine_positions(int64_t extra, const Grid& grid, int64_t width);

}  // namespace ringtape::nn
