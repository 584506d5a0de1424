#pragma once
#include "train/cli/command.h"

namespace ringtape::cli {

// The command line of a training as its job's present attempt follows it. --overwrite is for the first one: an attempt
// that a launcher has started again goes on with the run, as with --resume, unless the run is still the earlier one.
// Adds a note for the user. Throws UsageError if a restart can neither replace the run nor go on with it.
Invocation of_this_attempt(Invocation invocation, std::vector<std::string>& notes);

// Notes in an earlier run that this job, should it be started again, has not replaced it yet. Throws IoError.
void note_what_is_replaced(const Invocation& invocation);

}  // namespace ringtape::cli
