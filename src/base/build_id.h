/* Which build this is: the linker's build id of the program, which is another one whenever a byte of its code is. */
#ifndef VB_BASE_BUILD_ID_H
#define VB_BASE_BUILD_ID_H
#include <stddef.h>

/* Its first 16 hexadecimal digits; "" where the linker gave none. Static, any thread. */
const char *vb__build_id(void);
/* "gcc12.2" or "clang14.0": who compiled it. */
const char *vb__build_compiler(void);

#endif
