#pragma once
#include "comm/algorithm.h"

// One for each file of this folder.
namespace ringtape::comm {

extern const Algorithm ring;

}  // namespace ringtape::comm
