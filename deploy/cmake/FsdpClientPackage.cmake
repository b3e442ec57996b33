# The C++ client for other projects: find_package(fsdp) gives fsdp::client and fsdp::spec, pkg-config fsdp-client.
# `cmake --install build/dev --component devel --prefix DIR` installs it alone; tests/e2e/clients/cpp_test.py builds
# a project against it both ways. Not in the packages: it belongs to the gRPC it was built with.
include(CMakePackageConfigHelpers)

# Ours that `target` links, itself first: a library stands before those it needs.
function(fsdp_collect target result)
  set(found "${${result}}")
  get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
  foreach(library IN LISTS linked)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library "${library}")
    if(library MATCHES "^fsdp_" AND NOT library IN_LIST found)
      fsdp_collect(${library} found)
    endif()
  endforeach()
  list(PREPEND found ${target})
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
set(client_libraries "")
fsdp_collect(fsdp_spec client_libraries)
fsdp_collect(fsdp_client client_libraries)
list(JOIN client_libraries " -l" client_link_flags)

foreach(library IN LISTS client_libraries)
  string(REGEX REPLACE "^fsdp_" "" exported ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${exported})
endforeach()
set(client_includes ${CMAKE_INSTALL_INCLUDEDIR}/fsdp-client)
target_include_directories(fsdp_proto SYSTEM PUBLIC $<INSTALL_INTERFACE:${client_includes}>)
target_include_directories(fsdp_support SYSTEM PUBLIC $<INSTALL_INTERFACE:${client_includes}>)

install(TARGETS ${client_libraries} EXPORT fsdp COMPONENT devel
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fsdp)
install(EXPORT fsdp NAMESPACE fsdp:: FILE fsdpTargets.cmake DESTINATION ${package_dir} COMPONENT devel)
foreach(header client/client.h client/error.h client/exit_code.h client/interrupt.h proto/support/spec.h
        proto/support/status.h proto/support/tls/certificate.h proto/support/tls/tls_files.h)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${client_includes}/${folder} COMPONENT devel)
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/proto/generated/fsdp DESTINATION ${client_includes} COMPONENT devel
        FILES_MATCHING PATTERN "*.pb.h")

configure_package_config_file(deploy/cmake/fsdpConfig.cmake.in ${CMAKE_BINARY_DIR}/package/fsdpConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor release may change the library.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/fsdpConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/fsdpConfig.cmake ${CMAKE_BINARY_DIR}/package/fsdpConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT devel)

# The .pc file finds its prefix from where it lies, so that the tree may be moved.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(deploy/cmake/fsdp-client.pc.in ${CMAKE_BINARY_DIR}/package/fsdp-client.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/fsdp-client.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT devel)
