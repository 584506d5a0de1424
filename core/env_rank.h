#pragma once
#include <string>

// Variables by which a launcher configures its ranks. All others are in core/env.h.
namespace ringtape::env {

int progress();                 // RINGTAPE_PROGRESS, a file descriptor; 0: not set
const std::string& rank_log();  // RINGTAPE_RANK_LOG; empty: not set

}  // namespace ringtape::env
