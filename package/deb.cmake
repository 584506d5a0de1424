# Debian packages, by `cmake --workflow --preset package`: ringtape, the program and the shared library; ringtape-dev,
# what programs of one's own are built with. dpkg-shlibdeps finds what the program needs; what the static library needs
# is listed here.
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%ae OUTPUT_VARIABLE mail
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(CPACK_PACKAGE_CONTACT "the ringtape authors")
if(mail)
  string(APPEND CPACK_PACKAGE_CONTACT " <${mail}>")
endif()

# The licence, the changelogs and the manual page, which a package must have: only there, not in `cmake --install`.
file(READ LICENSE licence)
string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)" copyright "${licence}")
set(copyright ${CMAKE_MATCH_1})
string(REGEX REPLACE "^.*${copyright}\n\n" "" licence "${licence}")
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(REGEX REPLACE "(^|\n)([^\n])" "\\1 \\2" licence "${licence}")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if it is set
configure_file(package/copyright.in copyright @ONLY)
configure_file(package/changelog.in changelog.Debian @ONLY)
configure_file(CHANGELOG.md changelog COPYONLY)
configure_file(package/ringtape.1.in ringtape.1 @ONLY)
foreach(file changelog changelog.Debian ringtape.1)
  execute_process(COMMAND gzip -9nf ${CMAKE_CURRENT_BINARY_DIR}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(component program development)
  set(name_program ringtape)
  set(name_development ringtape-dev)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/copyright ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz
                ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name_${component}} COMPONENT ${component} EXCLUDE_FROM_ALL)
  foreach(package ${compiled_in})
    install(FILES /usr/share/doc/${package}/copyright RENAME copyright.${package} OPTIONAL
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name_${component}} COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
endforeach()
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ringtape.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program
        EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each has its own

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ringtape)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS curl)  # ringtape data download
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS openmpi-bin)  # --transport mpi
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION
"trains neural networks in C++, without other frameworks
ringtape trains fully connected networks, CNNs and ResNets on images, with and
without labels, on one device or on several. Tensors, autograd, kernels and
collectives are its own; kernels for SSE2, AVX2 and AVX-512 are chosen when it
starts.

This package has the program and the shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME ringtape-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
string(CONCAT CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS  # of ringtape::ringtape_static
       "libfmt-dev, libtomlplusplus-dev, zlib1g-dev, libjpeg-dev, libpng-dev, libwebp-dev, "
       "libtiff-dev, libssl-dev, libcpp-httplib-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "cmake, pkg-config, libeigen3-dev")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
"trains neural networks in C++ (development files)
ringtape trains fully connected networks, CNNs and ResNets on images, with and
without labels, on one device or on several.

This package has the headers, the static library, and files for CMake and
pkg-config.")

include(CPack)
cpack_add_component(program)
cpack_add_component(development DEPENDS program)
