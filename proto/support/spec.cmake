# fsdp_spec: job specs as text, defaults, and the one verdict on a job (support/spec.h).
add_library(fsdp_spec STATIC
  support/queue_config.cc support/spec.cc support/spec_array.cc support/spec_combinations.cc support/spec_decode.cc support/spec_document.cc
  support/spec_fields.cc support/spec_names.cc support/spec_number.cc support/spec_print.cc
  support/spec_resources.cc support/spec_set.cc support/spec_text.cc support/spec_validate.cc)
target_link_libraries(fsdp_spec PUBLIC fsdp_proto fsdp_support fsdp_plan
                                PRIVATE yaml-cpp nlohmann_json::nlohmann_json re2::re2)

# Which fields are paths, and where those may lie.
add_library(fsdp_spec_paths STATIC support/spec_paths.cc)
target_link_libraries(fsdp_spec_paths PUBLIC fsdp_proto fsdp_support)

# The proto with its comments, for the generated JSON Schema and reference page.
set(FSDP_SPEC_DESCRIPTORS ${CMAKE_CURRENT_BINARY_DIR}/job_descriptors.binpb)
add_custom_command(
  OUTPUT ${FSDP_SPEC_DESCRIPTORS}
  COMMAND protobuf::protoc -I ${CMAKE_CURRENT_SOURCE_DIR} --include_imports --include_source_info
          --descriptor_set_out=${FSDP_SPEC_DESCRIPTORS} ${CMAKE_CURRENT_SOURCE_DIR}/fsdp/v1/job.proto
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fsdp/v1/job.proto
  VERBATIM)
add_library(fsdp_spec_doc STATIC EXCLUDE_FROM_ALL
  support/spec_descriptors.cc support/spec_reference.cc support/spec_schema.cc
  ${FSDP_SPEC_DESCRIPTORS})
target_compile_definitions(fsdp_spec_doc INTERFACE FSDP_SPEC_DESCRIPTORS="${FSDP_SPEC_DESCRIPTORS}")
target_link_libraries(fsdp_spec_doc PUBLIC fsdp_spec PRIVATE nlohmann_json::nlohmann_json)
add_executable(fsdp-spec-doc EXCLUDE_FROM_ALL support/spec_doc_main.cc)
target_link_libraries(fsdp-spec-doc PRIVATE fsdp_spec_doc)
# `cmake --build ... --target spec_docs` after a change of job.proto or of the rule table.
add_custom_target(spec_docs
  COMMAND fsdp-spec-doc ${FSDP_SPEC_DESCRIPTORS} ${CMAKE_SOURCE_DIR}/docs
  COMMENT "docs/job_spec.md and docs/job_spec.schema.json")
