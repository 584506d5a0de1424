#pragma once
#include "train/cli/common.h"

namespace ringtape::cli {

// "a,b" as its words, each once. Throws UsageError, naming the flag.
std::vector<std::string> words_of(const std::string& flag, const std::string& list);

// `compare --inference`.
int compare_inference(const Invocation& invocation);

}  // namespace ringtape::cli
