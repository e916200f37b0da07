# cmake -DSOURCE=DIR -DHEADER=FILE -P: the header names the commit of the sources, and changes only when that does. A tarball has none.
cmake_path(GET SOURCE PARENT_PATH above)
set(ENV{GIT_CEILING_DIRECTORIES} ${above})  # a repository that a tarball was unpacked in is another one
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define MANIPLE_COMMIT \"${commit}\"\n")
