# RINGTAPE_REVISION: the commit of the sources.
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} describe --always --dirty OUTPUT_VARIABLE RINGTAPE_REVISION
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT RINGTAPE_REVISION)
  set(RINGTAPE_REVISION unknown)
endif()
