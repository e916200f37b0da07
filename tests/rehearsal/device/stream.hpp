#pragma once

#include <device/launch.hpp>
