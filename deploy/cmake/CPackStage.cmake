# Run by cpack on the staged tree, before it is packed: what a .deb has outside of /opt/fsdpctl.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
  # The executables find each other through /proc/self/exe, which sees through links.
  file(GLOB executables RELATIVE ${stage}/opt/fsdpctl/bin ${stage}/opt/fsdpctl/bin/*)
  file(MAKE_DIRECTORY ${stage}/usr/bin)
  foreach(name IN LISTS executables)
    file(CREATE_LINK /opt/fsdpctl/bin/${name} ${stage}/usr/bin/${name} SYMBOLIC)
  endforeach()
  # man looks nowhere else. Debian has them packed.
  file(GLOB_RECURSE pages RELATIVE ${stage}/opt/fsdpctl/share/man ${stage}/opt/fsdpctl/share/man/*)
  foreach(page IN LISTS pages)
    get_filename_component(folder ${page} DIRECTORY)
    file(MAKE_DIRECTORY ${stage}/usr/share/man/${folder})
    execute_process(COMMAND gzip -9n -c ${stage}/opt/fsdpctl/share/man/${page}
                    OUTPUT_FILE ${stage}/usr/share/man/${page}.gz COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  file(REMOVE_RECURSE ${stage}/opt/fsdpctl/share/man)
  # systemd's places do not follow the prefix.
  set(systemd ${stage}/opt/fsdpctl/share/fsdpctl/systemd)
  file(GLOB units ${systemd}/*.service)
  file(COPY ${units} DESTINATION ${stage}/usr/lib/systemd/system)
  file(MAKE_DIRECTORY ${stage}/usr/lib/sysusers.d)
  file(COPY_FILE ${systemd}/fsdpctl.sysusers.conf ${stage}/usr/lib/sysusers.d/fsdpctl.conf)
  file(COPY ${systemd}/coordinator.env ${systemd}/worker.env DESTINATION ${stage}/etc/fsdpctl)
endif()
