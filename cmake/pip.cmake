# What a build by pip (scikit-build-core) needs beside the rest: HiGHS, if set-up has not built it, and
# where things are installed.
if(NOT EXISTS ${PROJECT_SOURCE_DIR}/third_party/highs)
  message(STATUS "building HiGHS, once for this source folder")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHON=${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/setup.sh highs
                  COMMAND_ERROR_IS_FATAL ANY)
endif()

execute_process(COMMAND ${Python_EXECUTABLE} -I -c
  "import sysconfig; print(sysconfig.get_path('platlib'), sysconfig.get_path('scripts'), sep=';')"
  OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(GET answer 0 REGEN_SITE_PACKAGES)
list(GET answer 1 REGEN_SCRIPTS)

# regen_install(TARGET FOLDER TORCH) puts it into a folder of the wheel. TORCH leads from there to torch's
# libraries; the folder of the torch that it was built with is looked in first.
function(regen_install target folder torch)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/${torch}")
  install(TARGETS ${target} DESTINATION ${folder})
endfunction()
