# Where the service's parts lie; read by install.sh and uninstall.sh.
# shellcheck shell=bash disable=SC2034

PREFIX="${PREFIX:-/opt/ostler}"
PREFIX="${PREFIX%/}"
DESTDIR="${DESTDIR:-}"
DESTDIR="${DESTDIR%/}"
# The folder for what an administrator installs: /etc/systemd/system stays free for changes to it.
UNITDIR="${UNITDIR:-/usr/local/lib/systemd/system}"
COMMAND=/usr/local/bin/ostler
CONFIGDIR=/etc/ostler
root="$DESTDIR$PREFIX"

say() { printf '%s\n' "$1"; }

warn() { printf 'ostler: %s\n' "$1" >&2; }

fail() {
	printf 'ostler: %s; %s\n' "$1" "$2" >&2
	exit 1
}

is_ours() {
	# A folder that holds anything else than our layout is somebody's, whatever PREFIX says. An installation that was
	# interrupted leaves no link.
	[ ! -e "$root/current" ] || [[ "$(readlink "$root/current")" = versions/* ]] || return 1
	[ -z "$(find "$root" -mindepth 1 -maxdepth 1 ! -name current ! -name versions ! -name .current.new -print -quit)" ]
}

check_place() {
	# The prefix ends up in a unit, in a script's first line and in a pattern.
	[[ "$PREFIX" =~ ^(/[A-Za-z0-9._-]+)+$ && "$PREFIX/" != */../* ]] || fail "PREFIX=$PREFIX is not an absolute path of letters, digits, . _ and -" \
		"use a folder such as /opt/ostler"
	case "$PREFIX/" in
	/root/* | /home/* | /run/* | /tmp/* | /var/tmp/* | /dev/* | /proc/* | /sys/*)
		fail "PREFIX=$PREFIX lies where the service cannot see it or a reboot clears it" "use a folder such as /opt/ostler"
		;;
	esac
	[[ "$UNITDIR" = /* ]] || fail "UNITDIR=$UNITDIR is not an absolute path" "give the whole path"
	[ -z "$DESTDIR" ] || [[ "$DESTDIR" = /* ]] || fail "DESTDIR=$DESTDIR is not an absolute path" "give the whole path"
	[ -z "$DESTDIR" ] || [ -d "$DESTDIR" ] || fail "DESTDIR=$DESTDIR does not exist" "create it or correct it"
}
