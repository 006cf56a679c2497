#!/bin/bash
# abi.c for 32 bits: it holds assertions only, so that it compiles is the test.
# usage: m32.sh COMPILER LANGUAGE VERSION FLAGS... FILE     exit: 0, 1, 77 no C library's headers for 32 bits
set -u
compiler=$1 language=$2 version=$3
shift 3
echo '#include <stdio.h>' | "$compiler" -m32 -x c -c - -o /dev/null 2>/dev/null ||
	{ echo "$compiler -m32 finds no C library's headers here (Debian: gcc-multilib)"; exit 77; }
"$compiler" -m32 -x "$language" -std="$version" -Wall -Wextra -Werror -c -o /dev/null "$@"
