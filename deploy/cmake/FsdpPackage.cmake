# What is installed (bin, lib, share/fsdpctl) and packed: a relocatable .tar.gz and a .deb, by `cpack` in
# the build folder of the release preset. Checked by tests/e2e/package_test.
include(GNUInstallDirs)
set(fsdp_executables "")
foreach(target fsdpctl fsdp-coordinator fsdp-worker fsdp-trainer fsdp-trainer-cuda fsdp-tokenize)
  if(TARGET ${target})
    list(APPEND fsdp_executables ${target})
  endif()
endforeach()
install(TARGETS ${fsdp_executables} RUNTIME DESTINATION bin)
install(DIRECTORY deploy/examples DESTINATION share/fsdpctl USE_SOURCE_PERMISSIONS)
# The chart's links to rules and dashboards hold there too.
install(DIRECTORY deploy/prometheus deploy/grafana deploy/helm DESTINATION share/fsdpctl USE_SOURCE_PERMISSIONS
        PATTERN __pycache__ EXCLUDE)
install(DIRECTORY deploy/systemd DESTINATION share/fsdpctl PATTERN debian EXCLUDE)
install(DIRECTORY proto/fsdp proto/google DESTINATION share/fsdpctl/proto FILES_MATCHING PATTERN "*.proto")
install(FILES docs/job_spec.schema.json DESTINATION share/fsdpctl)
install(FILES docs/job_spec.md docs/operations.md docs/kubernetes.md docs/metrics.md docs/monitoring.md docs/failure_model.md
        docs/numeric_policy.md docs/tokenize.md CHANGELOG.md
        DESTINATION share/doc/fsdpctl)
install(DIRECTORY docs/runbooks DESTINATION share/doc/fsdpctl)
# Debian's name for the licence.
install(FILES LICENSE DESTINATION share/doc/fsdpctl RENAME copyright)

if(TARGET fsdp_client)
  include(FsdpClientPackage)
endif()
foreach(page IN LISTS FSDP_MAN_PAGES)
  get_filename_component(section ${page} LAST_EXT)
  string(SUBSTRING ${section} 1 -1 section)
  install(FILES ${page} DESTINATION share/man/man${section} OPTIONAL)
endforeach()
# A page for each verb: their names are the command table's.
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1 OPTIONAL
        FILES_MATCHING PATTERN "fsdpctl-*.1")

if(FSDPCTL_STATIC)
  # The shared libraries that are left travel along; the C and C++ runtimes and what belongs to a GPU do
  # not.
  set(of_the_system "(c|m|dl|rt|pthread|resolv|stdc\\\\+\\\\+|gcc_s|cuda|nvidia-ml|cudart|cublas|cublasLt|nccl|cudnn|cupti)")
  set(installed "")
  foreach(target IN LISTS fsdp_executables)
    string(APPEND installed " \"$<TARGET_FILE:${target}>\"")
  endforeach()
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES${installed}
         RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
         PRE_EXCLUDE_REGEXES \"^lib${of_the_system}\\\\.so\" \"^ld-linux\")
    if(missing)
      message(FATAL_ERROR \"unresolved libraries: \${missing}\")
    endif()
    foreach(library IN LISTS found)
      # Under the name that the loader asks for; the file itself, not a link.
      get_filename_component(name \${library} NAME)
      get_filename_component(file \${library} REALPATH)
      file(INSTALL \${file} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib\" RENAME \${name})
    endforeach()")
endif()

set(CPACK_PACKAGE_NAME fsdpctl)
set(CPACK_PACKAGE_VENDOR fsdpctl)
set(CPACK_PACKAGE_CONTACT "The fsdpctl maintainers <maintainers@fsdpctl.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Sharded transformer training as a gRPC service")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ DEB)
# All but the component devel.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};${PROJECT_NAME};Unspecified;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_FILE_NAME "fsdpctl-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The newest symbol versions that the executables and the carried libraries ask for; tests/e2e/package_test
# compares.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libstdc++6 (>= 12), libgcc-s1")
set(systemd_scripts ${CMAKE_SOURCE_DIR}/deploy/systemd/debian)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${systemd_scripts}/postinst ${systemd_scripts}/prerm ${systemd_scripts}/postrm
    ${systemd_scripts}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# The .deb lives in /opt/fsdpctl with links in /usr/bin and its units where systemd looks; the archive unpacks anywhere.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/deploy/cmake/CPackGenerator.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/deploy/cmake/CPackStage.cmake)
include(CPack)
