# GCC for a Cortex-M55 with floating point and MVE; another core: -DTARGET_CPU=cortex-m85
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(TARGET_CPU "cortex-m55" CACHE STRING "GCC's -mcpu")
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # there is no board to link for yet
set(CMAKE_C_FLAGS_INIT "-mcpu=${TARGET_CPU} -mthumb -mfloat-abi=hard -ffunction-sections -fdata-sections")
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
set(CMAKE_C_FLAGS_RELEASE "-O2" CACHE STRING "")
