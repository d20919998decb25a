#!/bin/sh
# Makes the cluster of a database whose directory is empty, before its server starts. A mark
# says that what is there is not whole yet: what was cut is made again.
set -eu
case $1 in
postgresql/*/*)
	version=${1#postgresql/} name=${version#*/} version=${version%%/*} user=postgres
	data=$(pg_conftool -s "$version" "$name" show data_directory)
	make() { # the configuration is the layer's: that of a new cluster is thrown away
		PG_CLUSTER_CONF_ROOT=$RUNTIME_DIRECTORY LC_ALL=C.UTF-8 pg_createcluster --quiet --datadir "$data/new" "$version" "$name"
		mv "$data"/new/* "$data"
		rmdir "$data/new"
		chmod 700 "$data"
	}
	;;
mysql)
	user=mysql
	data=$(my_print_defaults --mysqld | sed -n 's/^--data[-_]*dir=//p' | tail -n 1)
	data=${data:-/var/lib/mysql}
	make() { mariadb-install-db --rpm --cross-bootstrap --user=mysql --disable-log-bin --skip-test-db --datadir="$data"; }
	;;
esac
mark=$data/.caisson-unfinished
mkdir -p "$data"
chown "$user:$user" "$data"
if [ -e "$mark" ]; then
	find "$data" -mindepth 1 -maxdepth 1 ! -name lost+found ! -path "$mark" -exec rm -rf {} +
elif [ -n "$(find "$data" -mindepth 1 -maxdepth 1 ! -name lost+found -print -quit)" ]; then
	exit 0
fi
: >"$mark"
sync -f "$data"
make
sync -f "$data"
rm "$mark"
sync -f "$data"
