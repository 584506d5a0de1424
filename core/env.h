#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

// Every RINGTAPE_ variable, read once at its first use. A test compares the table in docs/reference.md with
// env::variables().
namespace ringtape::env {

struct Variable {
  const char* name;
  const char* values;   // allowed values
  const char* meaning;  // one sentence, with the default
  bool secret = false;  // never printed or stored
};
std::span<const Variable> variables();

// Names beginning with RINGTAPE_ in the environment that are probably misspelt, each with the variable that was meant.
std::vector<std::pair<std::string, std::string>> misspelt();

int threads();                    // RINGTAPE_THREADS; 0: not set
const std::string& cpu_isa();     // RINGTAPE_CPU_ISA; empty: not set
bool find_nan();                  // RINGTAPE_NAN
bool poison();                    // RINGTAPE_POISON
bool sync();                      // RINGTAPE_SYNC
bool cublas();                    // RINGTAPE_CUBLAS
int cudnn();                      // RINGTAPE_CUDNN; -1: not set
const std::string& conv_plans();  // RINGTAPE_CONV_PLANS; empty: not set
int fused_conv();                 // RINGTAPE_FUSED_CONV; -1: not set
bool exact_conv();                // RINGTAPE_EXACT_CONV
int tcp_sockets();                // RINGTAPE_TCP_SOCKETS; 0: not set
const std::string& all_reduce();  // RINGTAPE_ALLREDUCE; empty: not set
const std::string& log();         // RINGTAPE_LOG
const std::string& data_dir();    // RINGTAPE_DATA_DIR; empty: not set
const std::string& on_save();     // RINGTAPE_ON_SAVE; empty: not set
const std::string& store();       // RINGTAPE_STORE; empty: not set
const std::string& token();       // RINGTAPE_TOKEN; empty: not set
int heartbeat();                  // RINGTAPE_HEARTBEAT, seconds
const std::string& dump();        // RINGTAPE_DUMP; empty: not set

// Of this user, for files that can be made again: ringtape in $XDG_CACHE_HOME or ~/.cache; empty: there is no such
// place. Need not exist.
std::string cache_folder();

}  // namespace ringtape::env
