#pragma once
#include "core/tensor.h"

namespace ringtape::comm {

// Makes the rows of contiguous x (r, n), f32 or f64, orthonormal, in place: modified Gram-Schmidt,
// twice over, since what rounding leaves of a row that depends on those before it need not be
// orthogonal to them (Giraud, Langou and Rozloznik, "The loss of orthogonality in the Gram-Schmidt
// orthogonalization process", 2005). A row of which nothing is left becomes zeros; what is not
// finite makes NaNs. On x's device, which nobody waits for; the same bits from the same bits.
void orthonormalize(const Tensor& x);

// (r, 1): the sum of x^2 along each row of contiguous x (r, n).
Tensor square_rows(const Tensor& x);

}  // namespace ringtape::comm
