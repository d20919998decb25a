#!/bin/sh
# Makes the modules of all sources for kernel $1. Those that dkms cannot make are named, each with
# the end of its log, after a line that says so.
set -eu
kernel=$1
for conf in /usr/src/*/dkms.conf; do
	dkms add "${conf%/dkms.conf}"
done
dkms autoinstall -k "$kernel" || true # in the order that they depend on one another; each is looked at below
why=$(mktemp)
for source in /var/lib/dkms/*/*/source; do
	version=${source%/source} name=${source%/*/source}
	version=${version##*/} name=${name##*/} tree=/var/lib/dkms/${name##*/}
	for done in "$tree"/kernel-"$kernel"-*; do
		[ -e "$done" ] && continue 2
	done
	said=$(mktemp)
	log=$tree/$version/build/make.log
	if [ ! -e "$log" ]; then # it was not tried: not meant to be made by itself, or refused
		dkms install -m "$name" -v "$version" -k "$kernel" >"$said" 2>&1 && continue
		[ -e "$log" ] || log=$said
	fi
	echo "module $name $version:"
	tail -n 12 "$log"
done >"$why"
[ -s "$why" ] || exit 0
echo "caisson: not made"
cat "$why"
exit 1
