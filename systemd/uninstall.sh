#!/usr/bin/env bash
# Removes what install.sh put in place, and keeps what people wrote and the agent remembers. Run it by `make uninstall`.
#
# From the environment: PREFIX, DESTDIR and UNITDIR, as they were given to the installation.
set -euo pipefail
# shellcheck source=systemd/places.sh
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/places.sh"

check_place
if [ -z "$DESTDIR" ]; then
	[ "$(id -u)" = 0 ] || fail "only root can remove a system service" "run it as root"
fi
if [ -e "$root" ] && ! is_ours; then
	fail "$root is not as an installation leaves it and is not removed" "look at it, and remove it yourself"
fi
if [ -z "$DESTDIR" ]; then
	if [ -d /run/systemd/system ] && [ -e "$UNITDIR/ostler.service" ]; then
		systemctl disable --now --quiet ostler.service
		say "stopped   ostler.service"
	elif [ -d /run/systemd/system ] && systemctl is-active --quiet ostler.service; then
		fail "ostler.service runs and its unit is not in $UNITDIR" "give UNITDIR= as it was given to the installation"
	fi
fi
for path in "$DESTDIR$UNITDIR/ostler.service" "$DESTDIR$COMMAND" "$root"; do
	if [ "$path" = "$DESTDIR$COMMAND" ] && [ "$(readlink "$path" || true)" != "$PREFIX/current/bin/ostler" ]; then continue; fi
	[ -e "$path" ] || [ -L "$path" ] || continue
	rm -rf "$path"
	say "removed   $path"
done
if [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl reset-failed ostler.service 2>/dev/null || true # it is not known any more unless it had failed
fi
for path in "$CONFIGDIR" /etc/default/ostler /etc/systemd/system/ostler.service.d /var/lib/ostler; do
	[ ! -e "$DESTDIR$path" ] || say "kept      $DESTDIR$path"
done
