# Runs PROGRAM, with the arguments of a line "// With the arguments: ..." of SOURCE: fails unless it succeeds and prints
# the lines below "// Prints:".
file(READ ${SOURCE} text)
set(arguments "")
if(text MATCHES "// With the arguments: ([^\n]*)\n")
  separate_arguments(arguments UNIX_COMMAND "${CMAKE_MATCH_1}")
endif()
string(REGEX MATCH "// Prints:\n((//   [^\n]*\n)+)" found "${text}")
string(REPLACE "//   " "" expected "${CMAKE_MATCH_1}")
execute_process(COMMAND ${PROGRAM} ${arguments} OUTPUT_VARIABLE printed RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR expected STREQUAL "" OR NOT printed STREQUAL expected)
  message(FATAL_ERROR "exit code ${code}; expected:\n${expected}printed:\n${printed}")
endif()
