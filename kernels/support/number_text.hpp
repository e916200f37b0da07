// Numbers as people read them, in three or four digits.
#pragma once

#include <string>

namespace maniple {

std::string number_text(double number);  // "0.0527", "7.18", "208.3", "16010"; "-" for NaN
std::string bytes_text(double bytes);    // "64 KiB", "13.5 GiB"; "unlimited" from 2^64 on; "-" for NaN

}  // namespace maniple
