# A compiler that is too old. The line is preformatted: .ci/quietly.sh shows it alone.
set(ringtape_oldest_GNU 12)
set(ringtape_oldest_Clang 14)
set(ringtape_oldest ${ringtape_oldest_${CMAKE_CXX_COMPILER_ID}})
if(ringtape_oldest AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS ringtape_oldest)
  message(FATAL_ERROR " ringtape needs g++ ${ringtape_oldest_GNU} or clang++ ${ringtape_oldest_Clang} or newer, "
                      "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}: remove the build folder, "
                      "then name another, such as CXX=g++-${ringtape_oldest_GNU}")
endif()

# Every library, from the distribution. A missing one is named together with the command that installs all of them.
string(CONCAT RINGTAPE_APT_LINE
       "apt-get install g++ cmake ninja-build libcli11-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev "
       "zlib1g-dev libjpeg-dev libpng-dev libssl-dev libcpp-httplib-dev libjs-dygraphs libgtest-dev libgmock-dev "
       "libeigen3-dev libdlpack-dev libbenchmark-dev")
set(ringtape_missing "")

# ringtape_find(<package> <what it is for> [arguments of find_package])
macro(ringtape_find package purpose)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND ringtape_missing "${package} (${purpose})")
  endif()
endmacro()

ringtape_find(Threads "threads")
ringtape_find(CLI11 "the command line")
ringtape_find(fmt "formatting")
ringtape_find(nlohmann_json "metrics and safetensors headers")
ringtape_find(tomlplusplus "configuration files")
ringtape_find(ZLIB "gz data sets")
ringtape_find(JPEG "JPEG files")
ringtape_find(PNG "PNG files")
ringtape_find(OpenSSL "hashes of downloaded data sets, tokens of jobs" COMPONENTS Crypto)
find_path(RINGTAPE_HTTPLIB_INCLUDE httplib.h)
find_library(RINGTAPE_HTTPLIB cpp-httplib)
if(RINGTAPE_HTTPLIB_INCLUDE AND RINGTAPE_HTTPLIB)
  add_library(ringtape_httplib INTERFACE)
  target_include_directories(ringtape_httplib SYSTEM INTERFACE ${RINGTAPE_HTTPLIB_INCLUDE})
  target_link_libraries(ringtape_httplib INTERFACE ${RINGTAPE_HTTPLIB})
  # What Debian and Ubuntu compile the library with: its classes differ without.
  target_compile_definitions(ringtape_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT
                             CPPHTTPLIB_BROTLI_SUPPORT)
else()
  list(APPEND ringtape_missing "cpp-httplib (ringtape view)")
endif()
find_file(RINGTAPE_DYGRAPHS dygraph.min.js HINTS ${CMAKE_PREFIX_PATH} /usr PATH_SUFFIXES share/javascript/dygraphs)
if(NOT RINGTAPE_DYGRAPHS)
  list(APPEND ringtape_missing "dygraph.min.js (the curves of ringtape view)")
endif()
if(RINGTAPE_TESTS)
  ringtape_find(GTest "the tests; or set -DRINGTAPE_TESTS=OFF")
  ringtape_find(Eigen3 "the tests; or set -DRINGTAPE_TESTS=OFF")
  ringtape_find(dlpack "the tests; or set -DRINGTAPE_TESTS=OFF")
endif()
if(RINGTAPE_BENCH)
  ringtape_find(benchmark "the benchmarks; or set -DRINGTAPE_BENCH=OFF")
endif()
if(ringtape_missing)
  list(JOIN ringtape_missing "\n  " lines)
  message(FATAL_ERROR "Not found:\n  ${lines}\nOn Debian and Ubuntu: ${RINGTAPE_APT_LINE}\n(or run ./setup.sh)")
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
