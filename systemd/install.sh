#!/usr/bin/env bash
# Installs ostler as a systemd service: PREFIX/versions/<version> with an environment of its own, PREFIX/current that
# points to it, the unit, the command. Each version is made whole beside the one in use and then switched to in one step,
# so that an installation that fails or is interrupted changes nothing. Run it by `make install`.
#
# From the environment: PREFIX, DESTDIR (another root to install into; nothing is started), UNITDIR, PYTHON.
set -euo pipefail
umask 022
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=systemd/places.sh
. "$here/places.sh"

find_python() {
	# Without PYTHON the first that will do; a virtual environment's or a user's own is often first in PATH.
	local candidate refused="" candidates="python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11"
	for candidate in ${PYTHON:-$candidates}; do
		command -v "$candidate" >/dev/null 2>&1 || { refused+=$'\n'"  $candidate: not found"; continue; }
		if refused+=$'\n'"  $candidate: $("$candidate" - <<-'PYTHON' 2>&1
			import sys
			hidden = [folder for folder in ("/root/", "/home/", "/run/user/", "/tmp/") if (sys.base_prefix + "/").startswith(folder)]
			if sys.version_info < (3, 11):
			    sys.exit("is Python %d.%d; 3.11 or later is needed" % sys.version_info[:2])
			if hidden:
			    sys.exit("lies in %s, which the service cannot see; use the system's own" % sys.base_prefix)
			try:
			    import ensurepip, venv
			except ImportError:
			    sys.exit("has no venv module; install it (on Debian and Ubuntu: apt-get install python3-venv)")
			print("ok")
			PYTHON
			)"; then
			python="$("$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))')"
			return
		fi
	done
	fail "no Python that the service can run with:$refused" "name one: make install PYTHON=/usr/bin/python3.11"
}

build() {
	# The environment is made under a hidden name: nothing in it knows its path but our own launcher.
	local site script
	building="$root/versions/.building.$$"
	trap 'rm -rf "$building"' EXIT
	rm -rf "$root"/versions/.building.*
	mkdir -p -m 0755 "$building"
	"$python" -m venv "$building"
	"$python" "$here/../deploy/image/lock.py" "$here/../requirements.lock" >"$building/requirements.txt"
	"$building/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary=:all: \
		--require-hashes --requirement "$building/requirements.txt" ||
		fail "the packages of the lock file could not be installed (see above)" "check the way to the package index"
	site="$("$building/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	"$python" "$here/release.py" copy "$site"
	sed -i '/^command = /d' "$building/pyvenv.cfg"
	script="$building/bin/ostler"
	printf '#!%s/bin/python -I\nimport sys\nfrom ostler.cli.main import main\nsys.exit(main())\n' "$PREFIX/versions/$identity" >"$script"
	chmod 0755 "$script"
	"$building/bin/python" "$here/../deploy/image/packages.py" "$building" "$PREFIX/versions/$identity"
	rm -rf "${root:?}/versions/$identity" # without its command: somebody has taken it apart
	mv -T "$building" "$root/versions/$identity"
	trap - EXIT
}

write_bytecode() {
	# The unit's agent cannot write it. It names modules by their paths, which a staged tree does not have yet. Also where
	# this version was there already: its installation may have been interrupted before this step, and a file that another
	# patch release of Python has made is not read.
	[ -z "$DESTDIR" ] || return 0
	"$root/versions/$identity/bin/python" -I -m ostler.cli.bytecode || warn "the agent will start more slowly"
}

switch() {
	# Whoever starts ostler in between gets the old version or the new one, never neither.
	ln -sfn "versions/$identity" "$root/.current.new"
	mv -T "$root/.current.new" "$root/current"
}

install_files() {
	local command="$DESTDIR$COMMAND" changed
	mkdir -p -m 0755 "$DESTDIR$(dirname "$COMMAND")" "$DESTDIR$UNITDIR" "$DESTDIR$CONFIGDIR"
	if [ -e "$command" ] && [ ! -L "$command" ]; then
		warn "$command is not a link of ours and stays; the agent's command is $PREFIX/current/bin/ostler"
	else
		ln -sfn "$PREFIX/current/bin/ostler" "$command"
	fi
	changed="$(mktemp "$DESTDIR$UNITDIR/.ostler.XXXXXX")"
	sed "s#/opt/ostler/#$PREFIX/#" "$here/ostler.service" >"$changed"
	chmod 0644 "$changed"
	mv -T "$changed" "$DESTDIR$UNITDIR/ostler.service"
	if [ -e "$DESTDIR$CONFIGDIR/config.yaml" ]; then
		say "kept      $DESTDIR$CONFIGDIR/config.yaml"
	else
		install -m 0644 "$here/config.yaml" "$DESTDIR$CONFIGDIR/config.yaml"
		say "example   $DESTDIR$CONFIGDIR/config.yaml"
	fi
}

remove_old_versions() {
	# The one before stays, for the way back; where this one was there already, nobody knows which that is.
	local version
	[ "$previous" != "$identity" ] || return 0
	for version in "$root"/versions/*; do
		case "${version##*/}" in "$identity" | "$previous") ;; *) rm -rf "$version" ;; esac
	done
}

tell_systemd() {
	systemctl daemon-reload
	if ! systemctl is-active --quiet ostler.service; then
		say "next      edit $CONFIGDIR/config.yaml, then: ostler config check $CONFIGDIR/config.yaml"
		say "          systemctl enable --now ostler    and look inside: ostler status; journalctl -u ostler"
	elif [ "$previous" = "$identity" ]; then
		say "running   already this version; not restarted"
	else
		systemctl restart ostler.service
		say "running   restarted with this version; back to the one before: see docs/systemd.md"
	fi
}

check_place
if [ -z "$DESTDIR" ]; then
	[ "$(id -u)" = 0 ] || fail "only root can install a system service" "run it as root, or give DESTDIR= to fill a folder"
	[ -d /run/systemd/system ] || fail "this machine does not run systemd (no /run/systemd/system)" \
		"use the Helm chart (deploy/helm), or give DESTDIR= to install into another machine's root"
fi
if [ -e "$root" ] && ! is_ours; then
	fail "$root holds what is not ours, and could not be removed again" "give PREFIX= a folder of its own"
fi
find_python
identity="$("$python" "$here/release.py" identity)" || fail "the sources are not complete" "use a clean checkout"
previous="$(readlink "$root/current" 2>/dev/null || true)"
previous="${previous##*/}"
mkdir -p -m 0755 "$root/versions"
if [ -x "$root/versions/$identity/bin/ostler" ]; then
	say "there     $root/versions/$identity"
else
	build
	say "made      $root/versions/$identity"
fi
write_bytecode
install_files
switch
remove_old_versions
say "unit      $DESTDIR$UNITDIR/ostler.service"
say "command   $DESTDIR$COMMAND"
if [ -z "$DESTDIR" ]; then tell_systemd; else say "next      on the machine itself: systemctl daemon-reload; systemctl enable --now ostler"; fi
