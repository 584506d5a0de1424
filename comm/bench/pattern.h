#pragma once
#include "comm/operation.h"

// What the ranks start from when collectives are checked: small whole numbers whose sums,
// of any order, every dtype holds exactly.
namespace ringtape::comm {

// A rank's elements from `data` on: those that it gives into the operation of `ranks` ranks. Host memory.
void fill_input(void* data, const comm::Operation& operation, int ranks, int rank);

// How many of the elements that the operation leaves on a rank are not what they should be: exactly that, or within 2
// units in the last place for an avg.
int64_t count_wrong(const void* data, const comm::Operation& operation, int ranks, int rank);

int64_t input_elements(const comm::Operation& operation, int ranks, int rank);   // that it gives
int64_t output_elements(const comm::Operation& operation, int ranks, int rank);  // that it is left with

}  // namespace ringtape::comm
