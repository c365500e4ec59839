# Front door; the build itself is in meson.build. Every target sets up what it needs.
BUILD ?= build
PREFIX ?= /usr/local
.PHONY: all setup setup-full demo check asan fuzz bench install clean
all: $(BUILD)/build.ninja
	ninja -C $(BUILD)
$(BUILD)/build.ninja:
	@sh tools/setup.sh check
	meson setup $(BUILD) --prefix=$(PREFIX)
setup:
	@sh tools/setup.sh install
setup-full:
	@sh tools/setup.sh install full
demo: setup
	@$(MAKE) --no-print-directory all
	@sh tools/demo.sh $(BUILD)/verbatim
check: setup
	@$(MAKE) --no-print-directory all
	@sh tools/check.sh $(BUILD)
asan: setup
	@test -d build-asan || meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false
	ninja -C build-asan
	@sh tools/check.sh build-asan
fuzz:
	@sh tools/setup.sh install fuzz
	sh tools/fuzz.sh $(SECONDS_EACH)
bench: all
	$(BUILD)/verbatim bench --geometry qwen3.5-0.8b
# A PREFIX that was given counts for a folder that was set up before, too.
install: all
ifneq ($(origin PREFIX),file)
	meson configure $(BUILD) --prefix=$(PREFIX)
	ninja -C $(BUILD)
endif
	meson install -C $(BUILD) --no-rebuild
clean:
	rm -rf $(BUILD) build-asan build-fuzz
