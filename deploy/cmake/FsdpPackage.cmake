# What is installed (bin, lib, share/fsdpctl) and packed: a relocatable .tar.gz and a .deb
# (cpack -G TGZ | DEB in the release build).
include(GNUInstallDirs)
set(fsdp_executables "")
foreach(target fsdpctl fsdp-coordinator fsdp-worker fsdp-trainer fsdp-trainer-cuda)
  if(TARGET ${target})
    list(APPEND fsdp_executables ${target})
  endif()
endforeach()
install(TARGETS ${fsdp_executables} RUNTIME DESTINATION bin)
install(DIRECTORY deploy/examples DESTINATION share/fsdpctl)
install(DIRECTORY proto/fsdp proto/google DESTINATION share/fsdpctl/proto FILES_MATCHING PATTERN "*.proto")
install(FILES docs/job_spec.schema.json DESTINATION share/fsdpctl OPTIONAL)

if(FSDPCTL_STATIC)
  # The shared libraries that are left travel along; the C and C++ runtimes and device drivers do not.
  set(installed "")
  foreach(target IN LISTS fsdp_executables)
    list(APPEND installed "$<TARGET_FILE:${target}>")
  endforeach()
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${installed}
         RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
         PRE_EXCLUDE_REGEXES \"^lib(c|m|dl|rt|pthread|stdc\\\\+\\\\+|gcc_s|cuda|nvidia-ml)\\\\.so\" \"^ld-linux\"
                             \"^lib(cudart|cublas|cublasLt|nccl|cudnn|cupti)\\\\.so\")
    foreach(library IN LISTS found)
      file(INSTALL \${library} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib\" FOLLOW_SYMLINK_CHAIN)
    endforeach()
    if(missing)
      message(FATAL_ERROR \"unresolved libraries: \${missing}\")
    endif()")
endif()

set(CPACK_PACKAGE_NAME fsdpctl)
set(CPACK_PACKAGE_VENDOR fsdpctl)
set(CPACK_PACKAGE_CONTACT "The fsdpctl maintainers <maintainers@fsdpctl.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Sharded transformer training as a gRPC service")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /opt/fsdpctl)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12), libgcc-s1")
set(CPACK_STRIP_FILES ON)
include(CPack)
