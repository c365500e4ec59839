#include "engine/text_out.h"
