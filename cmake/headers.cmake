# What other projects include: the headers in <build>/include/ringtape, where they include each other as
# <ringtape/core/tensor.h>, so that none of them takes a project's own core/tensor.h, and ringtape.h, which includes the
# public ones (docs/api.md) that need no other library.
#   cmake -DSOURCE=FOLDER -DINCLUDE=FOLDER -P cmake/headers.cmake   writes those that differ
cmake_policy(VERSION 3.25)
set(folders core kernels autograd comm nn train emulation)  # emulation: for kernels that a project emulates here
if(CMAKE_SCRIPT_MODE_FILE)
  function(write header text)
    set(before "")
    if(EXISTS ${INCLUDE}/ringtape/${header})
      file(READ ${INCLUDE}/ringtape/${header} before)
    endif()
    if(NOT text STREQUAL before)
      file(WRITE ${INCLUDE}/ringtape/${header} "${text}")
    endif()
  endfunction()

  file(STRINGS ${SOURCE}/docs/api.md rows REGEX "^\\| `")
  string(REGEX MATCHALL "`[a-z0-9_/]+\\.h`" public "${rows}")
  list(FILTER public EXCLUDE REGEX "/(eigen|dlpack)\\.h")
  list(TRANSFORM public REPLACE "`(.*)`" "#include <ringtape/\\1>\n")
  list(JOIN public "" all)
  write(ringtape.h "#pragma once\n${all}")
  set(written ringtape.h)
  foreach(folder ${folders})
    file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.h ${SOURCE}/${folder}/*.cuh)
    foreach(header ${headers})
      file(READ ${SOURCE}/${header} text)
      string(REGEX REPLACE "#include \"([a-z]+/[^\"\n]+)\"" "#include <ringtape/\\1>" text "${text}")
      write(${header} "${text}")
    endforeach()
    list(APPEND written ${headers})
  endforeach()
  file(GLOB_RECURSE gone RELATIVE ${INCLUDE}/ringtape ${INCLUDE}/ringtape/*)
  list(REMOVE_ITEM gone ${written})
  foreach(header ${gone})
    file(REMOVE ${INCLUDE}/ringtape/${header})
  endforeach()
  return()
endif()

# At once, for those who read compile_commands.json, and again whenever a header changes.
set(RINGTAPE_INCLUDE ${PROJECT_BINARY_DIR}/include)
set(command ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DINCLUDE=${RINGTAPE_INCLUDE} -P ${CMAKE_CURRENT_LIST_FILE})
execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
set(headers docs/api.md ${CMAKE_CURRENT_LIST_FILE})
foreach(folder ${folders})
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h ${PROJECT_SOURCE_DIR}/${folder}/*.cuh)
  list(APPEND headers ${found})
endforeach()
add_custom_command(OUTPUT ${RINGTAPE_INCLUDE}/written COMMAND ${command}
                   COMMAND ${CMAKE_COMMAND} -E touch ${RINGTAPE_INCLUDE}/written
                   DEPENDS ${headers} COMMENT "Headers for other projects" VERBATIM)
add_custom_target(ringtape_headers DEPENDS ${RINGTAPE_INCLUDE}/written)
