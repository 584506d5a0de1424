#pragma once
#include "core/random.h"
#include "kernels/kernel.h"

namespace ringtape {

// y = value, in every dtype and any strides.
RT_KERNEL(fill, void(View y, double value));

// y[i] = i for contiguous y of shape (N): integers and floats.
RT_KERNEL(fill_range, void(View y));

// Contiguous floating-point y. Element i comes from word i % 4 of block i / 4 of the state: uniform in [low, high),
// which rounding to the dtype may close.
RT_KERNEL(fill_uniform, void(View y, RandomState state, double low, double high));

// Normal by Box and Muller: elements 4j .. 4j + 3 from block j, two a pair of words.
RT_KERNEL(fill_normal, void(View y, RandomState state, double mean, double deviation));

}  // namespace ringtape
