# Run by cpack on the staged tree, before it is packed. The executables find each other through
# /proc/self/exe, which sees through links.
if(CPACK_GENERATOR STREQUAL "DEB")
  file(GLOB executables RELATIVE ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/opt/fsdpctl/bin
       ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/opt/fsdpctl/bin/*)
  file(MAKE_DIRECTORY ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin)
  foreach(name IN LISTS executables)
    file(CREATE_LINK /opt/fsdpctl/bin/${name} ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin/${name} SYMBOLIC)
  endforeach()
endif()
