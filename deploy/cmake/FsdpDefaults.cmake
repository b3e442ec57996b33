# Compiler settings of every target, and the helper that declares a test.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# -g1 keeps line tables for stacks without the weight of full debug information.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths relative to the tree: build folders whose flags are the same share their objects.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers>")
# Source paths in logs and debug information are relative to the tree.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>")
include_directories(${CMAKE_SOURCE_DIR})

# Several sources a compilation: headers are most of what the compiler reads. Sources of one target then
# share their unnamed namespaces; a target where names meet says UNITY_BUILD OFF.
option(FSDPCTL_UNITY "Compile several sources at once: less to compile in all, more after an edit" OFF)
set(CMAKE_UNITY_BUILD ${FSDPCTL_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

# Sanitized code is compiled with -O1: twice as fast to build as -O2, and clearer stacks.
if(NOT FSDPCTL_SANITIZE STREQUAL "")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
endif()
if(FSDPCTL_SANITIZE STREQUAL "address")
  # Left out: null (a null access faults under the address sanitizer anyway) and vptr; both double
  # the code of everything that includes gRPC or protobuf headers.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(FSDPCTL_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(FSDPCTL_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FSDPCTL_SANITIZE is 'fuzzer', which clang alone has: cmake --preset fuzz")
  endif()
  # Of undefined behaviour what inputs bring about; the whole of it would double what is compiled.
  set(undefined signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow,bounds)
  add_compile_options(-fsanitize=fuzzer-no-link,address,${undefined} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  # g++'s own headers call what they declare deprecated.
  add_compile_options(-Wno-deprecated-declarations)
  add_link_options(-fsanitize=address,${undefined})
elseif(NOT FSDPCTL_SANITIZE STREQUAL "")
  message(FATAL_ERROR "FSDPCTL_SANITIZE is '${FSDPCTL_SANITIZE}': use address, thread or fuzzer")
endif()

# What protoc wrote is not ours to mend: no warnings, and no checks for undefined behaviour.
set(FSDP_GENERATED_OPTIONS -w)
if(FSDPCTL_SANITIZE STREQUAL "address")
  list(APPEND FSDP_GENERATED_OPTIONS -fno-sanitize=undefined)
elseif(FSDPCTL_SANITIZE STREQUAL "fuzzer")
  # Nor to be found out: what the fuzzers are after lies behind the parser.
  list(APPEND FSDP_GENERATED_OPTIONS -fno-sanitize=all -O0)
endif()

# fsdp_test(NAME name SOURCES a_test.cc... LIBS targets... [LABELS l...] [TIMEOUT seconds])
# A GoogleTest executable registered with ctest. Labels: unit, contract, parity, fault, e2e; `core` marks
# what the sanitizer runs take, `threads` what the thread sanitizer takes.
# Built by the sanitizer runs: the tests labelled core and threads.
add_custom_target(core_tests)
add_custom_target(thread_tests)

function(fsdp_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS;DEPENDS" ${ARGN})
  add_executable(${T_NAME} ${T_SOURCES})
  target_link_libraries(${T_NAME} PRIVATE ${T_LIBS} GTest::gmock GTest::gtest_main)
  if(T_DEPENDS)
    add_dependencies(${T_NAME} ${T_DEPENDS})
  endif()
  # Where tests find the built executables and committed data.
  target_compile_definitions(${T_NAME} PRIVATE FSDP_BINARY_DIR="${CMAKE_BINARY_DIR}/bin"
                                               FSDP_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${T_NAME} COMMAND ${T_NAME})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  # Instrumented code takes several times as long.
  if(FSDPCTL_SANITIZE)
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 3")
  endif()
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
  if("core" IN_LIST T_LABELS)
    add_dependencies(core_tests ${T_NAME})
  endif()
  if("threads" IN_LIST T_LABELS)
    add_dependencies(thread_tests ${T_NAME})
  endif()
endfunction()

# Executables that are installed land in one folder, so that they find each other.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
