#pragma once
#include <string>

// What a launcher tells its ranks by variables, beside core/env.h, which has all others.
namespace ringtape::env {

int progress();                 // RINGTAPE_PROGRESS, a descriptor; 0: not set
const std::string& rank_log();  // RINGTAPE_RANK_LOG; empty: not set

}  // namespace ringtape::env
