# Runs PROGRAM: fails unless it succeeds and prints the lines below "// Prints:" of SOURCE.
file(READ ${SOURCE} text)
string(REGEX MATCH "// Prints:\n((//   [^\n]*\n)+)" found "${text}")
string(REPLACE "//   " "" expected "${CMAKE_MATCH_1}")
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR expected STREQUAL "" OR NOT printed STREQUAL expected)
  message(FATAL_ERROR "exit code ${code}; expected:\n${expected}printed:\n${printed}")
endif()
