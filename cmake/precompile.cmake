# The standard library's headers, and gtest's, compiled once for many files: with RINGTAPE_PRECOMPILE.
set(RINGTAPE_PRECOMPILED
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <filesystem> <fstream>
    <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <thread>
    <unordered_map> <vector>)
# Those of the CPU kernels, which need few of them.
set(RINGTAPE_PRECOMPILED_KERNELS
    <algorithm> <array> <atomic> <bit> <cmath> <cstdint> <cstring> <functional> <limits> <memory> <numeric> <optional>
    <stdexcept> <string> <string_view> <tuple> <utility> <vector>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND RINGTAPE_PRECOMPILED_KERNELS <immintrin.h>)
endif()
if(RINGTAPE_PRECOMPILE AND CCACHE)
  # What ccache's manual asks for; and paths in this build's folder count as relative ones, so that builds in other
  # folders have the same objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  CCACHE_BASEDIR=${CMAKE_BINARY_DIR} ${CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# ringtape_precompile(<target> [<target whose precompiled headers it takes>]): those of an OBJECT
# library, compiled with the same options.
function(ringtape_precompile name)
  if(NOT RINGTAPE_PRECOMPILE)
    return()
  endif()
  if(ARGN)
    target_precompile_headers(${name} REUSE_FROM ${ARGN})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)  # as a library's
  else()
    target_precompile_headers(${name} PRIVATE ${RINGTAPE_PRECOMPILED})
  endif()
endfunction()
