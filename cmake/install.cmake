# `cmake --install build --component development --prefix P` puts the libraries that need no torch there, with their
# headers and HiGHS, for find_package(regen). HiGHS goes into a folder of its own, so that it meets no other HiGHS.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/regen)

get_property(folders GLOBAL PROPERTY REGEN_TORCH_FREE)
list(TRANSFORM folders PREPEND regen_ OUTPUT_VARIABLE libraries)
install(TARGETS ${libraries} regen_all EXPORT regenTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT regenTargets NAMESPACE regen:: DESTINATION ${config_folder} COMPONENT development)
foreach(folder ${folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/regen/${folder} DESTINATION include/regen COMPONENT development
          FILES_MATCHING PATTERN "*.h")
endforeach()

# highs_DIR is PREFIX/lib/cmake/highs. A HiGHS of the system (not under the source folder) stays where it is.
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${highs_DIR}" NORMALIZE own_highs)
if(own_highs)
  install(DIRECTORY ${highs_DIR}/../../../lib DESTINATION ${CMAKE_INSTALL_LIBDIR}/regen/highs COMPONENT development
          FILES_MATCHING PATTERN "*.a" PATTERN "*.cmake")
  install(DIRECTORY ${highs_DIR}/../../../include DESTINATION ${CMAKE_INSTALL_LIBDIR}/regen/highs COMPONENT development)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/regenConfig.cmake.in ${PROJECT_BINARY_DIR}/regenConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regenConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/regenConfig.cmake ${PROJECT_BINARY_DIR}/regenConfigVersion.cmake
        DESTINATION ${config_folder} COMPONENT development)
