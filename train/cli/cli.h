#pragma once

namespace ringtape::cli {

// The whole command line. A program of one's own is it, with the models, data sets, transforms of images, methods,
// optimizers, schedules and callbacks that its files register:
//   int main(int argc, char** argv) { return ringtape::cli::main(argc, argv); }
// Returns the exit code: 0 done, 1 failed (also if what was printed is lost), 2 wrong usage, 3 out of memory, 75
// stopped by a signal (resume from a checkpoint or start again); `launch` returns the code of its first rank that
// failed. An error is one line on standard error; after a collective that did not finish in time, a table of its ranks
// follows.
int main(int argc, char** argv);

}  // namespace ringtape::cli
