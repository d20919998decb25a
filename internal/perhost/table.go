// SPDX-License-Identifier: Apache-2.0

// Package perhost is the one table of files that belong to one machine and that
// packages' scripts make once, where they are installed: in a layer each would be the
// same on every node, and known to all who read the registry.
//
// The builder leaves them out of layers ([Patterns]); the boot agent makes them anew
// for its node. builder, builder/base and bootagent/boot/handover import it.
package perhost

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
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
	{Patterns: []string{"etc/postfix/main.cf"}, Text: regexp.MustCompile(`(?m)^myhostname = (localhost|elsewhere)(\.\S*)?\n`),
		What: "name of Postfix", Instead: "it takes the node's"},
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

// Node is the node for which files are made.
type Node struct {
	Fleet, Name string
	Domain      string // of its lease, or ""
	Seed        []byte // SeedSize random bytes: what is secret follows from them
}

// SeedSize is the length of a seed in bytes.
const SeedSize = 32

// derive returns the nth 32 bytes that follow from a key for one purpose.
func derive(key []byte, purpose string, n int) []byte {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "caisson %s %d", purpose, n) // a hash takes everything
	return mac.Sum(nil)
}

// name returns 32 bytes that follow from fleet and node alone.
func (n Node) name(purpose string) []byte {
	return derive(fmt.Appendf(nil, "%d %s %s", len(n.Fleet), n.Fleet, n.Name), purpose, 0)
}

// initiator has the form of iscsi-iname(8) in Debian.
func initiator(n Node) ([]byte, error) {
	return fmt.Appendf(nil, "InitiatorName=iqn.1993-08.org.debian:01:%x\n", n.name("iscsi")[:6]), nil
}

// hostNQN is that of a UUID, NVMe Base Specification 4.7.
func hostNQN(n Node) ([]byte, error) {
	return fmt.Appendf(nil, "nqn.2014-08.org.nvmexpress:uuid:%s\n", n.uuid("nvme")), nil
}

func hostID(n Node) ([]byte, error) { return []byte(n.uuid("nvme") + "\n"), nil }

// uuid is of version 8, RFC 9562: one that follows from something.
func (n Node) uuid(purpose string) string {
	u := n.name(purpose)[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// mailname is the full name, see mailname(5).
func mailname(n Node) ([]byte, error) {
	return []byte(strings.TrimSuffix(n.Name+"."+n.Domain, ".") + "\n"), nil
}

// raw makes a key that is any bytes.
func raw(purpose string, size int) func(Node) ([]byte, error) {
	return func(n Node) ([]byte, error) {
		var key []byte
		for i := 0; len(key) < size; i++ {
			key = append(key, derive(n.Seed, purpose, i)...)
		}
		return key[:size], nil
	}
}

// rndc returns the file that rndc-confgen(8) -a writes.
func rndc(n Node) ([]byte, error) {
	secret := base64.StdEncoding.EncodeToString(derive(n.Seed, "rndc", 0))
	return fmt.Appendf(nil, "key \"rndc-key\" {\n\talgorithm hmac-sha256;\n\tsecret %q;\n};\n", secret), nil
}

// cookie is 32 upper-case letters; Erlang makes 20.
func cookie(n Node) ([]byte, error) {
	text := derive(n.Seed, "erlang", 0)
	for i, b := range text {
		text[i] = 'A' + b%26
	}
	return text, nil
}

// snakeoilMaker is Debian's own; where it is, something may name its files.
const snakeoilMaker = "/usr/sbin/make-ssl-cert"

// snakeoil is a key of P-256: older libpq cannot bind a channel by Ed25519.
func snakeoil(n Node) (key *ecdsa.PrivateKey, err error) {
	for i := range 8 { // one in 2^32 is not a key
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), derive(n.Seed, "snakeoil", i)); err == nil {
			break
		}
	}
	return key, err
}

func snakeoilKey(n Node) ([]byte, error) {
	key, err := snakeoil(n)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// snakeoilCertificate is signed by its own key, and the same at each boot. It begins before
// any node's clock and does not end, RFC 5280 4.1.2.5.
func snakeoilCertificate(n Node) ([]byte, error) {
	key, err := snakeoil(n)
	if err != nil {
		return nil, err
	}
	is := x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(derive(n.Seed, "serial", 0)[:15]), Subject: pkix.Name{CommonName: n.Name}, DNSNames: []string{n.Name},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(nil, &is, &is, key.Public(), key) // no random numbers: RFC 6979
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// dropbear is a private key in the form of dropbearkey(1): name, and seed and public
// key, each after its length.
func dropbear(n Node) ([]byte, error) {
	key := ed25519.NewKeyFromSeed(derive(n.Seed, "dropbear", 0))
	return sshString(sshString(nil, ed25519Name), string(key)), nil
}

const ed25519Name = "ssh-ed25519"

// OpenSSH makes the key of a seed: the file in OpenSSH's own form (PROTOCOL.key), without a
// passphrase, and the blob of the public half. x/crypto/ssh writes it too, for a quarter of a
// megabyte of agent.
func OpenSSH(seed []byte, comment string) (private, public []byte) {
	key := ed25519.NewKeyFromSeed(seed)
	// RFC 8709 says how the public half is written.
	public = sshString(sshString(nil, ed25519Name), string(key.Public().(ed25519.PublicKey)))
	sum := sha256.Sum256(key) // a check number, twice; it guards a passphrase that there is not
	secret := append(append(sum[:4:4], sum[:4]...), public...)
	secret = sshString(sshString(secret, string(key)), comment)
	for pad := byte(1); len(secret)%8 != 0; pad++ {
		secret = append(secret, pad)
	}
	out := []byte("openssh-key-v1\x00")
	for _, field := range []string{"none", "none", ""} { // cipher, key derivation, its options
		out = sshString(out, field)
	}
	out = binary.BigEndian.AppendUint32(out, 1) // one key
	out = sshString(sshString(out, string(public)), string(secret))
	return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: out}), public
}

// sshString appends a length and the bytes, RFC 4251.
func sshString(to []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(s))), s...)
}
