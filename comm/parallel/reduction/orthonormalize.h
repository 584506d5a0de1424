#pragma once
#include "core/tensor.h"

namespace ringtape::comm {

// Makes the rows of contiguous x (r, n), f32 or f64, orthonormal, in place: modified Gram-Schmidt, applied twice,
// because for a row that nearly depends on earlier ones the rounding errors that remain need not be orthogonal to them
// (Giraud, Langou and Rozloznik, "The loss of orthogonality in the Gram-Schmidt orthogonalization process", 2005). A
// row of which nothing is left becomes zeros; non-finite values give NaNs. Runs on x's device without a wait of the
// host; the same input bits give the same output bits.
void orthonormalize(const Tensor& x);

// (r, 1): the sum of x^2 along each row of contiguous x (r, n).
Tensor square_rows(const Tensor& x);

}  // namespace ringtape::comm
