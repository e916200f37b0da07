# cmake -DSOURCE=DIR -DHEADER=FILE -P: writes the commit of the sources into the header, which changes only with the commit. A tarball has none.
cmake_path(GET SOURCE PARENT_PATH above)
set(ENV{GIT_CEILING_DIRECTORIES} ${above})  # a tarball may be unpacked inside another repository
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define MANIPLE_COMMIT \"${commit}\"\n")
