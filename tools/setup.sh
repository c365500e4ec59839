#!/bin/sh
# Packages that a Debian system needs: tools/setup.sh [install|check] [base|fuzz|full]
#   install  installs what is missing (as root or through sudo), does nothing where nothing is
#   check    says what is missing and how to get it
# Exits 4 with the command and the packages where they are missing and cannot be installed here.
set -eu
action=${1:-install} set=${2:-base}

base="gcc libc6-dev make meson ninja-build pkg-config python3 libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev
 libssl-dev libzstd-dev libcmocka-dev libedit-dev libmicrohttpd-dev libcurl4-openssl-dev"
fuzz="clang"
full="clang clang-format curl nodejs npm qemu-user python3-venv python3-pip python3-numpy chromium man-db"
case $set in
base) packages=$base ;;
fuzz) packages="$base $fuzz" ;;
full) packages="$base $full" ;;
*) echo "setup: unknown set '$set', expected base, fuzz or full" >&2; exit 2 ;;
esac

missing= names=
if command -v dpkg-query >/dev/null 2>&1; then
    for p in $packages; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
    done
else # no Debian: look for what the build itself asks for
    for tool in cc meson ninja pkg-config python3; do command -v $tool >/dev/null 2>&1 || missing="$missing $tool"; done
    for lib in jansson libpcre2-8 libutf8proc libxxhash libcrypto libzstd cmocka libedit libmicrohttpd libcurl; do
        pkg-config --exists $lib 2>/dev/null || missing="$missing $lib"
    done
    names=$packages
fi
[ -n "$missing" ] || exit 0

# A tool that came another way than by a package is as good.
if command -v dpkg-query >/dev/null 2>&1; then
    still=
    for p in $missing; do
        case $p in
        gcc | make | meson | python3 | clang | clang-format | curl | npm | chromium) tool=$p ;;
        ninja-build) tool=ninja ;;
        nodejs) tool=node ;;
        *) tool= ;;
        esac
        [ -n "$tool" ] && command -v $tool >/dev/null 2>&1 || still="$still $p"
    done
    missing=$still
    [ -n "$missing" ] || exit 0
fi

as=
[ "$(id -u)" = 0 ] || as="sudo "
command="${as}apt-get update && ${as}env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
give_up() {
    echo "setup: $1" >&2
    echo "setup: missing:$missing" >&2
    echo "setup: on Debian 12 they come with: $command $(echo ${names:-$missing})" >&2
    exit 4
}
[ "$action" = install ] || give_up "packages are missing (make setup installs them)"
command -v apt-get >/dev/null 2>&1 || give_up "this system has no apt-get"
if [ -n "$as" ]; then
    command -v sudo >/dev/null 2>&1 || give_up "not root, and there is no sudo"
    # asks for a password only where someone can type one
    if [ -t 0 ]; then sudo -v || give_up "sudo was refused"; else sudo -n true 2>/dev/null || give_up "not root, and sudo wants a password"; fi
fi
echo "setup: installing$missing"
${as}apt-get update </dev/null || give_up "apt-get update failed"
${as}env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing </dev/null ||
    give_up "apt-get install failed"
