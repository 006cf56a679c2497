# Slipring. `make help` says what there is. A plain build and `make demo` need a Rust toolchain, gcc and make.

PREFIX ?= /usr/local
BINDIR ?= $(or $(bindir),$(PREFIX)/bin)
LIBDIR ?= $(or $(libdir),$(PREFIX)/lib)
INCLUDEDIR ?= $(or $(includedir),$(PREFIX)/include)
DESTDIR ?=

CARGO ?= cargo
CC ?= cc
CFLAGS ?= -O2 -g
INSTALL ?= install
OBJCOPY ?= objcopy

TARGET := $(or $(CARGO_TARGET_DIR),target)
VERSION := $(shell sed -n '/^version/{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
# src/build.rs gives the library this soname.
SONAME := libslipring.so.0
SHARED := libslipring.so.$(VERSION)
# The release of libxdp whose xsk_* interface the library has, for builds that ask pkg-config for `libxdp >= ...`.
LIBXDP_VERSION := 1.6.3
SOURCES := Cargo.toml Cargo.lock $(shell find src -type f)
PROGRAMS := $(patsubst c-tests/programs/%.c,build/programs/%,$(wildcard c-tests/programs/*.c))
YARDSTICKS := build/bench/wire build/bench/roundtrip build/bench/passthrough build/bench/next_stub.so build/bench/direct build/bench/direct-linked
# In a folder of their own, so that the system's xdp/xsk.h is not replaced.
HEADERS := slipring.h xdp/xsk.h xdp/xsk_gen.h xdp/libxdp.h bpf/xsk.h
INCLUDE := $(INCLUDEDIR)/slipring
# Likewise what bears libxdp's names: neither the loader nor pkg-config finds it unless told.
ASLIBXDP := $(LIBDIR)/slipring
# The program that the demo runs needs no capability: where this is root, it gets none.
UNPRIVILEGED := $(shell [ "$$(id -u)" != 0 ] || ! command -v setpriv >/dev/null || \
	echo setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all)

.DELETE_ON_ERROR:
.PHONY: all lib bin programs demo test test-dispatcher defects-of-libxdp soak bench deps install uninstall headers check-headers lint loom sanitize clean help

all: lib bin

help:
	@echo 'make                 libraries in build/lib, the program slipring in build/bin'
	@echo 'make demo            4 sockets on one UMEM send over a lossless wire; needs no privileges'
	@echo 'make test            everything that is tested; calls make deps'
	@echo 'make soak            the tests that take minutes: full counts, with kill -9'
	@echo 'make test-dispatcher the kernel path beside libxdp'"'"'s dispatcher, in a QEMU guest with Debian'"'"'s kernel'
	@echo 'make defects-of-libxdp  the tests of libxdp'"'"'s faults, linked to libxdp: do they fail where they must?'
	@echo 'make deps            what the tests need besides Rust, gcc and make: as root on Debian it is installed'
	@echo 'make bench           figures of this machine (one: build/bin/slipring bench NAME)'
	@echo 'make install         PREFIX ($(PREFIX)), BINDIR, LIBDIR, INCLUDEDIR and DESTDIR count; make uninstall undoes it'
	@echo 'make lint            rustfmt and clippy'
	@echo 'make loom            the ring models under the model checker'
	@echo 'make sanitize        the engine under AddressSanitizer, ThreadSanitizer and valgrind; make test does the short form'
	@echo 'make headers         write the generated headers; make check-headers tells whether they are current'
	@echo 'make clean           remove build/ and what cargo made'

# One crate type at a time: with an rlib among them cargo does no link-time optimisation.
lib: build/lib/libslipring.so build/lib/$(SONAME) build/lib/libslipring.a build/lib/libxdp/libxdp.so
bin: build/bin/slipring
programs: $(PROGRAMS)

build/lib/$(SHARED): $(SOURCES)
	$(CARGO) rustc --release --lib --crate-type cdylib --no-default-features --features heap-guard,libbpf
	@mkdir -p $(@D)
	$(INSTALL) -m 755 $(TARGET)/release/libslipring.so $@

build/lib/$(SONAME): build/lib/$(SHARED)
	ln -sf $(SHARED) $@

build/lib/libslipring.so: build/lib/$(SONAME)
	ln -sf $(SONAME) $@

# Without heap-guard: a static program has the C library's free() in the same object as malloc(). Without libbpf: it may have
# libbpf.a beside it. The three functions of libxdp proper yield to libxdp.a's, where that is linked behind it for xdp_*.
build/lib/libslipring.a: $(SOURCES)
	$(CARGO) rustc --release --lib --crate-type staticlib --no-default-features
	@mkdir -p $(@D)
	$(INSTALL) -m 644 $(TARGET)/release/libslipring.a $@
	$(OBJCOPY) $(addprefix --weaken-symbol=libxdp_,get_error strerror set_print) $@

# The same library as libxdp.so.1, in a folder of its own for LD_LIBRARY_PATH: for programs that ask for libxdp's soname and
# version nodes and use xsk_* only. rustc's own list of exports allows no nodes beside it, so the C compiler links an archive;
# not the one above, which is without some functions. (After that one: cargo leaves both in one place.)
build/lib/libxdp/libxdp.so.1: $(SOURCES) | build/lib/libslipring.a
	$(CARGO) rustc --release --lib --crate-type staticlib --no-default-features --features heap-guard,libbpf
	@mkdir -p $(@D)
	$(CC) -shared -o $@ -Wl,--whole-archive $(TARGET)/release/libslipring.a -Wl,--no-whole-archive -Wl,--gc-sections \
		-Wl,-soname,libxdp.so.1 -Wl,--version-script=src/abi/libxdp.map -Wl,-z,relro,-z,now,-z,nodelete \
		-Wl,--no-undefined -Wl,--as-needed -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc

build/lib/libxdp/libxdp.so: build/lib/libxdp/libxdp.so.1
	ln -sf libxdp.so.1 $@

build/bin/slipring: $(SOURCES)
	$(CARGO) build --profile tool --bin slipring
	@mkdir -p $(@D)
	$(INSTALL) -m 755 $(TARGET)/tool/slipring $@

build/programs/%: c-tests/programs/%.c $(wildcard c-tests/programs/*.h include/*/*.h) | build/lib/libslipring.so
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -D_GNU_SOURCE $(CFLAGS) -Iinclude $< -o $@ -Lbuild/lib -lslipring -lpthread -Wl,-rpath,'$$ORIGIN/../lib'

build/bench/%: benches/yardsticks/%.c benches/yardsticks/two.h
	@mkdir -p $(@D)
	$(CC) -O2 -march=native $< -o $@ -lpthread

build/bench/direct: benches/yardsticks/direct.c $(wildcard include/*/*.h)
	@mkdir -p $(@D)
	$(CC) -O2 -march=native -Iinclude $< -o $@ -ldl

# It looks for the library's functions in what is loaded, so nothing refers to the library that is linked.
build/bench/direct-linked: benches/yardsticks/direct.c $(wildcard include/*/*.h) | build/lib/libslipring.so
	@mkdir -p $(@D)
	$(CC) -O2 -march=native -Iinclude $< -o $@ -Lbuild/lib -Wl,--no-as-needed -lslipring -ldl -Wl,-rpath,'$$ORIGIN/../lib'

build/bench/%.so: benches/yardsticks/%.c
	@mkdir -p $(@D)
	$(CC) -O2 -march=native -shared -fPIC $< -o $@

demo: build/lib/libslipring.so build/bin/slipring build/programs/multisend
	@scripts/demo $(UNPRIVILEGED)

deps:
	@scripts/deps

test: deps
	@scripts/test

soak: deps build/lib/libslipring.so programs
	@scripts/soak

test-dispatcher:
	@scripts/test-dispatcher

defects-of-libxdp:
	@scripts/defects-of-libxdp

bench: all $(YARDSTICKS)
	build/bin/slipring bench tx wire passthrough create direct $(BENCHFLAGS)
	build/bin/slipring bench cq --threads 2,8 --time 50 --limit 30 $(BENCHFLAGS)

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --all-features -- -D warnings

headers:
	SLIPRING_HEADERS=write $(CARGO) check --lib --features headers

check-headers:
	$(CARGO) check --lib --features headers

# Other flags, so other artefacts: in a folder of their own they do not displace the ordinary ones.
loom:
	RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		$(CARGO) test --release --lib --no-default-features --target-dir $(TARGET)/loom ring

sanitize:
	@scripts/sanitize all

build/%.pc: pkgconfig/%.pc.in Makefile FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' -e 's|@LIBXDP@|$(LIBXDP_VERSION)|' $< > $@

.PHONY: FORCE
FORCE:

install: all build/slipring.pc build/libxdp.pc
	$(INSTALL) -d "$(DESTDIR)$(ASLIBXDP)/pkgconfig" \
		"$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(INCLUDE)/xdp" "$(DESTDIR)$(INCLUDE)/bpf"
	$(INSTALL) -m 755 build/bin/slipring "$(DESTDIR)$(BINDIR)/slipring"
	$(INSTALL) -m 755 build/lib/$(SHARED) "$(DESTDIR)$(LIBDIR)/$(SHARED)"
	ln -sf $(SHARED) "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	ln -sf $(SONAME) "$(DESTDIR)$(LIBDIR)/libslipring.so"
	$(INSTALL) -m 644 build/lib/libslipring.a "$(DESTDIR)$(LIBDIR)/libslipring.a"
	$(INSTALL) -m 644 build/slipring.pc "$(DESTDIR)$(LIBDIR)/pkgconfig/slipring.pc"
	$(INSTALL) -m 755 build/lib/libxdp/libxdp.so.1 "$(DESTDIR)$(ASLIBXDP)/libxdp.so.1"
	ln -sf libxdp.so.1 "$(DESTDIR)$(ASLIBXDP)/libxdp.so"
	$(INSTALL) -m 644 build/libxdp.pc "$(DESTDIR)$(ASLIBXDP)/pkgconfig/libxdp.pc"
	for header in $(HEADERS); do $(INSTALL) -m 644 include/$$header "$(DESTDIR)$(INCLUDE)/$$header" || exit 1; done
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

uninstall:
	rm -f "$(DESTDIR)$(BINDIR)/slipring" "$(DESTDIR)$(LIBDIR)/$(SHARED)" "$(DESTDIR)$(LIBDIR)/$(SONAME)" \
		"$(DESTDIR)$(LIBDIR)/libslipring.so" "$(DESTDIR)$(LIBDIR)/libslipring.a" "$(DESTDIR)$(LIBDIR)/pkgconfig/slipring.pc" \
		"$(DESTDIR)$(ASLIBXDP)/libxdp.so.1" "$(DESTDIR)$(ASLIBXDP)/libxdp.so" "$(DESTDIR)$(ASLIBXDP)/pkgconfig/libxdp.pc"
	for header in $(HEADERS); do rm -f "$(DESTDIR)$(INCLUDE)/$$header"; done
	-rmdir "$(DESTDIR)$(INCLUDE)/xdp" "$(DESTDIR)$(INCLUDE)/bpf" "$(DESTDIR)$(INCLUDE)" \
		"$(DESTDIR)$(ASLIBXDP)/pkgconfig" "$(DESTDIR)$(ASLIBXDP)"

clean:
	rm -rf build
	$(CARGO) clean
