// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// ofOneMachine are packages whose scripts make what is one machine's.
var ofOneMachine = []string{"      - name: tree\n", "      - name: tree\n" +
	"      - name: open-iscsi\n      - name: nvme-cli\n      - name: munge\n      - name: ssl-cert\n      - name: snmpd\n      - name: dropbear\n" +
	"      - name: postgresql\n      - name: mariadb-server\n      - name: postfix\n"}

// busy keeps Dropbear from the port of sshd, and Postfix from a processor that makes databases.
var busy = []string{"systemd.ssh_auto=no", strings.ReplaceAll(masked("dropbear", "postfix"), " ", ", ") + ", systemd.ssh_auto=no"}

// owned prints what only this node has, a line each. Of MariaDB's databases it is when they were
// made: two nodes boot one after the other.
const owned = `sudo sh -ec '
sha256sum /etc/machine-id /etc/ssh/ssh_host_ed25519_key /etc/iscsi/initiatorname.iscsi /etc/nvme/hostnqn /etc/nvme/hostid /etc/munge/munge.key /etc/ssl/private/ssl-cert-snakeoil.key /etc/ssl/certs/ssl-cert-snakeoil.pem /etc/dropbear/dropbear_ed25519_host_key
grep ^oldEngineID /var/lib/snmp/snmpd.conf
postconf -h myhostname
su postgres -c "psql -Atc \"select system_identifier from pg_control_system()\""
mariadb -NBe "select create_time from information_schema.tables where table_schema = \"mysql\" and table_name = \"innodb_index_stats\""
'`

// TestLongTwoNodesOfOneLayer: what is one machine's differs between two nodes, and is the same
// after a reboot where there is a disk. Databases are made on the node, and again where that was
// cut short.
func TestLongTwoNodesOfOneLayer(t *testing.T) {
	require.Long(t)
	f := fleet(t, slices.Concat(ofOneMachine, leanSite, busy)...)
	o := f.byHand(t, machine.Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: uuidOfDisk, Memory: 3072, Disk: filepath.Join(f.Dir, "state.raw")})
	if err := machine.MakeStateDisk(t.Context(), o.Disk, 2048, ""); err != nil {
		t.Fatal(err)
	}
	m := f.start(t, o)
	s := f.login(t, m)
	look(t, s, Check{"no failed units", "systemctl --failed --no-legend --plain", ""}, Check{"status", "sudo caisson-agent status", "~health      ok"})
	cut := run(t, s, owned)
	run(t, s, "sudo systemctl stop postgresql mariadb && sudo touch /var/lib/postgresql/17/main/.caisson-unfinished /var/lib/mysql/.caisson-unfinished && sudo systemctl start postgresql mariadb")
	first := run(t, s, owned)
	run(t, s, `sudo su postgres -c "psql -c 'create table kept (x int)'" && sudo mariadb -e "create database kept"`)
	s = f.reboot(t, m, s)
	look(t, s, Check{"what is in the databases", `sudo su postgres -c "psql -Atc 'select count(*) from kept'"; sudo mariadb -NBe "show databases like 'kept'"`, "0\nkept"})
	if again := run(t, s, owned); again != first {
		t.Errorf("after a reboot the node has\n%s\nand before\n%s", again, first)
	}
	shutDown(t, m, s)

	m = f.start(t, f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b", Memory: 3072}))
	s = f.login(t, m)
	look(t, s, Check{"no failed units", "systemctl --failed --no-legend --plain", ""})
	one, two, before := strings.Split(first, "\n"), strings.Split(run(t, s, owned), "\n"), strings.Split(cut, "\n")
	if len(one) != len(two) || len(one) != len(before) {
		t.Fatalf("one node has\n%s\nthe other\n%s", one, two)
	}
	for i, line := range one {
		if line == two[i] && line != "" {
			t.Errorf("two nodes have %s", line)
		}
		if database := i >= len(one)-2; database == (line == before[i]) && line != "" {
			t.Errorf("after clusters were cut short there is %s, before it was %s", line, before[i])
		}
	}
}
