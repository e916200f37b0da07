// ICU's data without entries, as its stubdata.cpp has it: properties of characters and NFC lie in libicuuc itself.
#include <unicode/udata.h>
#include <unicode/uversion.h>

const struct {
  uint16_t header_size;
  uint8_t magic[2];
  UDataInfo info;
  char padding[8];
  uint32_t count, reserved;
} U_ICUDATA_ENTRY_POINT = {
    32,
    {0xda, 0x27},
    {sizeof(UDataInfo), 0, U_IS_BIG_ENDIAN, U_CHARSET_FAMILY, U_SIZEOF_UCHAR, 0, "ToCP", {1}}};
