// SPDX-License-Identifier: Apache-2.0

// Package perhost is the one table of files that belong to one machine and that
// packages' scripts make once, where they are installed: in a layer each would be the
// same on every node, and known to all who read the registry.
//
// The builder leaves them out of layers ([Patterns]); the boot agent makes them anew
// for its node. builder, builder/base and bootagent/boot/handover import it.
package perhost

import (
	_ "embed"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Row is a file, or files of one kind.
type Row struct {
	Patterns []string // of path.Match, relative to the root of a tree
	What     string
	Shared   bool   // the nodes of a cluster need the same one
	Program  string // absolute; without it in a tree nothing is left out there

	// Text matches the part that is left out of the files, in place of them: what scripts make of
	// the host's name, which in a build is localhost, or elsewhere in the second of two. A file
	// without more text goes.
	Text *regexp.Regexp

	Instead string // what happens on a node where the table makes nothing
	Files   []File // what is made
	Keep    string // directory that a node with a disk keeps, without a word of the site

	Unit, Cluster string // server before which a cluster is made, and the instance that makes it, see [Bake]
}

// File is one that is made on a node.
type File struct {
	Path         string // absolute
	For          string // program that reads it; without that in the layer nothing is made
	Always       bool   // it takes the place of one that a disk has
	Owner, Group string // by name; "" is root
	Mode         fs.FileMode
	Make         func(Node) ([]byte, error) // the same for the same node
}

// Table is every kind. SSH host keys of OpenSSH, the machine-id and random seeds are
// made by bootagent/boot/handover, which needs them for more.
var Table = []Row{
	{Patterns: []string{"etc/ssh/ssh_host_*"}, What: "SSH host keys of OpenSSH", Instead: "one of Ed25519 is made at boot"},
	{Patterns: []string{"var/lib/dbus/machine-id"}, What: "machine-id of D-Bus",
		Instead: "programs read /etc/machine-id, which is made at boot"},
	{Patterns: []string{"var/lib/systemd/random-seed", "var/lib/systemd/credential.secret",
		"var/lib/urandom/random-seed"}, What: "random seeds", Instead: "made at boot, or by systemd"},
	{Patterns: []string{"etc/iscsi/initiatorname.iscsi"}, What: "name of an iSCSI initiator",
		Files: []File{{Path: "/etc/iscsi/initiatorname.iscsi", For: "/usr/sbin/iscsid", Always: true, Mode: 0o600, Make: initiator}}},
	{Patterns: []string{"etc/nvme/hostnqn", "etc/nvme/hostid"}, What: "name and number of an NVMe-oF host", Files: []File{
		{Path: "/etc/nvme/hostnqn", For: "/usr/sbin/nvme", Always: true, Mode: 0o644, Make: hostNQN},
		{Path: "/etc/nvme/hostid", For: "/usr/sbin/nvme", Always: true, Mode: 0o644, Make: hostID},
	}},
	{Patterns: []string{"etc/dropbear/*_host_key*", "etc/dropbear/initramfs/*_host_key*",
		"etc/dropbear-initramfs/*_host_key*"}, What: "SSH host keys of Dropbear",
		Files: []File{{Path: "/etc/dropbear/dropbear_ed25519_host_key", For: "/usr/sbin/dropbear", Mode: 0o600, Make: dropbear}}},
	{Patterns: []string{"etc/ssl/private/ssl-cert-snakeoil.key", "etc/ssl/certs/ssl-cert-snakeoil.pem"},
		What: "key and certificate of ssl-cert", Files: []File{
			{Path: "/etc/ssl/private/ssl-cert-snakeoil.key", For: snakeoilMaker, Always: true, Group: "ssl-cert", Mode: 0o640, Make: snakeoilKey},
			{Path: "/etc/ssl/certs/ssl-cert-snakeoil.pem", For: snakeoilMaker, Always: true, Mode: 0o644, Make: snakeoilCertificate},
		}},
	{Patterns: []string{"etc/munge/munge.key"}, What: "key of MUNGE", Shared: true,
		Files: []File{{Path: "/etc/munge/munge.key", For: "/usr/sbin/munged", Owner: "munge", Group: "munge", Mode: 0o400,
			Make: raw("munge", 128)}}},
	{Patterns: []string{"etc/bind/rndc.key"}, What: "key of rndc",
		Files: []File{{Path: "/etc/bind/rndc.key", For: "/usr/sbin/named", Owner: "bind", Group: "bind", Mode: 0o640, Make: rndc}}},
	{Patterns: []string{"etc/pacemaker/authkey"}, What: "key of Pacemaker Remote", Shared: true,
		Files: []File{{Path: "/etc/pacemaker/authkey", For: "/usr/sbin/pacemakerd", Owner: "hacluster", Group: "haclient",
			Mode: 0o440, Make: raw("pacemaker", 4096)}}},
	{Patterns: []string{"var/lib/rabbitmq/.erlang.cookie"}, What: "cookie of RabbitMQ", Shared: true,
		Files: []File{{Path: "/var/lib/rabbitmq/.erlang.cookie", For: "/usr/sbin/rabbitmq-server", Owner: "rabbitmq",
			Group: "rabbitmq", Mode: 0o400, Make: cookie}}},
	{Patterns: []string{"var/lib/snmp/snmpd.conf"}, What: "engine ID and users of SNMPv3", Keep: "/var/lib/snmp",
		Instead: "made by snmpd when it starts"},
	{Patterns: []string{"var/lib/postgresql/*/*"}, What: "clusters of PostgreSQL", Keep: "/var/lib/postgresql",
		Instead: "made before the server starts, by the configuration of the layer",
		Unit:    "postgresql@.service", Cluster: "postgresql-%i"},
	{Patterns: []string{"var/lib/mysql/*"}, What: "databases of MariaDB", Program: "/usr/bin/mariadb-install-db",
		Keep: "/var/lib/mysql", Instead: "made before the server starts",
		Unit: "mariadb.service", Cluster: "mysql"},
	{Patterns: []string{"etc/mysql/debian.cnf", "var/lib/mysql/*"}, What: "databases of MySQL, and the password of their maintenance",
		Program: "/usr/bin/ibd2sdi", Keep: "/var/lib/mysql", Instead: "not made: mysqld --initialize does"}, // MariaDB has no such program
	{Patterns: []string{"etc/mailname"}, Text: regexp.MustCompile(`\A(localhost|elsewhere)(\.\S*)?\n\z`),
		What:  "name of Exim, where debconf has no answer",
		Files: []File{{Path: "/etc/mailname", For: "/usr/sbin/exim4", Mode: 0o644, Make: mailname}}},
	{Patterns: []string{"etc/postfix/main.cf"}, Text: regexp.MustCompile(`(?m)^myhostname = (localhost|elsewhere)(\.\S*)?\n`), What: "name of Postfix", Instead: "it takes the node's"},
	{Patterns: []string{"var/lib/dkms/mok.key", "var/lib/dkms/mok.pub"}, What: "key that signs modules of DKMS", Instead: "nothing needs it"},
}

// Patterns lists the files that are left out of a tree whole.
func Patterns(tree fs.FS) (all []string) {
	for _, row := range Table {
		if _, err := fs.Stat(tree, strings.TrimPrefix(row.Program, "/")); row.Text == nil && (row.Program == "" || err == nil) {
			all = append(all, row.Patterns...)
		}
	}
	return slices.Clip(all)
}

// Shared lists the files of a tree, by their absolute paths, that the nodes of a cluster
// share.
func Shared(tree fs.FS) (all []string) {
	for _, row := range Table {
		for _, pattern := range row.Patterns {
			found, _ := fs.Glob(tree, pattern) // the patterns are valid
			for _, name := range found {
				if row.Shared {
					all = append(all, "/"+name)
				}
			}
		}
	}
	return all
}

//go:embed cluster.sh
var clusterScript string

const clusterUnit = `[Unit]
Description=Make the cluster %I of this node, where it has none
RequiresMountsFor=/var/lib/%I

[Service]
Type=oneshot
ExecStart=/usr/lib/caisson/make-cluster %I
RuntimeDirectory=caisson-cluster-%i
PrivateTmp=yes
TimeoutStartSec=15min
`

// Baked is a file that a layer has in place of what is left out.
type Baked struct {
	Path, Text string
	Mode       fs.FileMode
}

// Bake lists those of a layer, where exists tells whether it has a path.
func Bake(exists func(path string) bool) (all []Baked) {
	for _, row := range Table {
		if row.Unit == "" || !exists("/usr/lib/systemd/system/"+row.Unit) {
			continue
		}
		if all == nil {
			all = []Baked{{"/usr/lib/caisson/make-cluster", clusterScript, 0o755},
				{"/usr/lib/systemd/system/caisson-cluster@.service", clusterUnit, 0o644}}
		}
		before := "caisson-cluster@" + row.Cluster + ".service"
		all = append(all, Baked{"/usr/lib/systemd/system/" + row.Unit + ".d/10-caisson-cluster.conf",
			"[Unit]\nRequires=" + before + "\nAfter=" + before + "\n", 0o644})
	}
	return all
}
