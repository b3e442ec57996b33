# fsdp_spec: job specs as text, defaults, and the one verdict on a job (support/spec.h).
add_library(fsdp_spec STATIC
  support/spec.cc support/spec_combinations.cc support/spec_decode.cc support/spec_document.cc
  support/spec_fields.cc support/spec_names.cc support/spec_number.cc support/spec_print.cc
  support/spec_set.cc support/spec_validate.cc)
target_link_libraries(fsdp_spec PUBLIC fsdp_proto fsdp_support fsdp_plan
                                PRIVATE yaml-cpp nlohmann_json::nlohmann_json)
