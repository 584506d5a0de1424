#pragma once
#include "comm/operation.h"

// Inputs for checking collectives: small whole numbers whose sums are exact in every dtype and any order.
namespace ringtape::comm {

// Writes a rank's input of an operation of `ranks` ranks to `data`, in host memory.
void fill_input(void* data, const comm::Operation& operation, int ranks, int rank);

// The number of wrong elements in a rank's output. Elements must be exact; for avg they may differ by 2 units in the
// last place.
int64_t count_wrong(const void* data, const comm::Operation& operation, int ranks, int rank);

int64_t input_elements(const comm::Operation& operation, int ranks, int rank);   // of a rank's input
int64_t output_elements(const comm::Operation& operation, int ranks, int rank);  // of its output

}  // namespace ringtape::comm
