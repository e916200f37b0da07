# `cmake --install` installs the program, the cluster scripts, the modulefile, and the documents with the licence. The documents keep
# their folders, so their links work.
include(GNUInstallDirs)
install(TARGETS maniple RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY cluster DESTINATION ${CMAKE_INSTALL_DATADIR}/maniple USE_SOURCE_PERMISSIONS)
file(GLOB documents CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} LICENSE *.md *.cff)
file(GLOB_RECURSE below CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     kernels/*.md parallel/*.md layers/*.md runtime/*.md launch/*.md cluster/*.md tests/*.md)
foreach(document ${documents} ${below})
  cmake_path(GET document PARENT_PATH folder)
  install(FILES ${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(FILES ${CMAKE_CURRENT_LIST_DIR}/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/maniple/modulefiles/maniple RENAME ${PROJECT_VERSION})
