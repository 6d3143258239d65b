# SPDX-License-Identifier: Apache-2.0
# The objects of Debian's libjemalloc-dev as one, with a prefix on the few names that are used and none
# of its others outside, least of all malloc.  A library loaded at run time can't be it: its data of a
# thread is static TLS, more than the C library has to spare for dlopen.
# Sets JEMALLOC53_OBJECT and JEMALLOC53_TSD, or neither.
find_file(JEMALLOC53_ARCHIVE libjemalloc_pic.a PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib
  NO_DEFAULT_PATH)
# GNU's: LLVM's takes the names to be kept for the old ones.
find_program(GNU_OBJCOPY NAMES ${CMAKE_LIBRARY_ARCHITECTURE}-objcopy objcopy)
unset(JEMALLOC53_OBJECT)
if(JEMALLOC53_ARCHIVE AND CMAKE_LINKER AND GNU_OBJCOPY AND CMAKE_NM)
  execute_process(COMMAND sh -c "strings -a '${JEMALLOC53_ARCHIVE}' | grep -m 1 -c '^5\\.3\\.'"
    OUTPUT_VARIABLE right_version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND sh -c "'${CMAKE_NM}' -S '${JEMALLOC53_ARCHIVE}' 2>/dev/null | awk '$4 == \"je_tsd_tls\" {print $2}'"
    OUTPUT_VARIABLE tsd_size OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(right_version AND tsd_size MATCHES "^[0-9a-f]+$")
    math(EXPR JEMALLOC53_TSD "0x${tsd_size}")
    set(JEMALLOC53_OBJECT ${CMAKE_CURRENT_BINARY_DIR}/jemalloc53.o)
    set(keep)
    foreach(name mallocx dallocx xallocx sallocx nallocx mallctl)
      list(APPEND keep --redefine-sym ${name}=faultline_je_${name} --keep-global-symbol=faultline_je_${name})
    endforeach()
    # Its data of a thread; and what it would ask of the host.  Without .init_array it starts with its
    # first call, not with the program.
    add_custom_command(OUTPUT ${JEMALLOC53_OBJECT}
      COMMAND ${CMAKE_LINKER} -r --whole-archive ${JEMALLOC53_ARCHIVE} -o ${JEMALLOC53_OBJECT}.whole.o
      COMMAND ${GNU_OBJCOPY} --redefine-sym je_tsd_tls=faultline_je_tsd
        --redefine-sym je_opt_cache_oblivious=faultline_je_cache_oblivious
        --keep-global-symbol=faultline_je_cache_oblivious
        --redefine-sym secure_getenv=faultline_je_getenv --redefine-sym readlink=faultline_je_readlink
        --redefine-sym clock_gettime=faultline_je_clock_gettime --redefine-sym sysconf=faultline_je_sysconf
        ${keep} --keep-global-symbol=faultline_je_tsd
        --remove-section=.init_array --remove-section=.rela.init_array
        ${JEMALLOC53_OBJECT}.whole.o ${JEMALLOC53_OBJECT}
      DEPENDS ${JEMALLOC53_ARCHIVE} VERBATIM)
  endif()
endif()
