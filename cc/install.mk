# `make -C cc OUT=... PREFIX=/usr/local DESTDIR=/staging install`: the C library with its headers, manual pages and
# pkg-config file; the preload library and the filters where `bulkhead guard` and people look for them.
PREFIX ?= /usr/local
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -n 1)
TO := $(DESTDIR)$(PREFIX)

install: all
	install -d $(TO)/include/bulkhead $(TO)/lib/pkgconfig $(TO)/libexec/bulkhead/filters $(TO)/share/man/man3 $(TO)/bin
	install -m 644 include/cc.h include/cc_filter.h core/cc_core.h $(TO)/include/bulkhead
	install -m 755 $(OUT)/libbulkheadcc.so $(TO)/lib
	install -m 644 $(OUT)/libbulkheadcc.a $(TO)/lib
	$(if $(GUARD),install -m 755 $(OUT)/libbulkhead-guard.so $(TO)/libexec/bulkhead)
	install -m 755 $(FILTERS) $(TO)/libexec/bulkhead/filters
	install -m 755 $(OUT)/ccserver $(TO)/bin
	install -m 644 man/cc.3 man/cc_filter.3 $(TO)/share/man/man3
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' bulkhead-cc.pc.in > $(TO)/lib/pkgconfig/bulkhead-cc.pc

.PHONY: install
