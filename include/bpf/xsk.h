/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where libbpf before 1.0 had this header: for programs that say #include <bpf/xsk.h>. */
#include "../xdp/xsk.h"
