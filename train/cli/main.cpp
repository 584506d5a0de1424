#include "train/cli/cli.h"

int main(int argc, char** argv) { return ringtape::cli::main(argc, argv); }
