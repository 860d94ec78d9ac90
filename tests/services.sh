#!/bin/sh
# Installs the programs that some tests need, from Debian's packages, where this may be done:
# as root, on a machine with apt-get. Elsewhere those tests are skipped and say why.
set -u
wanted=""
[ -n "$(command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null)" ] || wanted="$wanted postgresql"
[ -n "${STROP_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}" ] ||
    wanted="$wanted chromium"
[ -n "$wanted" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed, so some tests will be skipped:$wanted"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install --quiet --yes --no-install-recommends "$1" >/dev/null 2>&1; }
for package in $wanted; do
    install "$package" || { apt-get update --quiet >/dev/null && install "$package"; } ||
        echo "could not be installed, so some tests will be skipped: $package"
done
