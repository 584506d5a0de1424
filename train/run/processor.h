#pragma once
#include <string>

namespace ringtape {

// The processor's model, as Linux names it. Of an Arm processor, for which Linux has only numbers, the usual name.
std::string processor_name();

// What an Arm processor has beyond the first AArch64, of what computes: "fp16 dotprod bf16 sve"; empty on others.
std::string processor_features();

// The value of the first line "key : value" of a /proc file; empty if there is none.
std::string proc_value(const char* path, const std::string& key);

}  // namespace ringtape
