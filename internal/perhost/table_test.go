// SPDX-License-Identifier: Apache-2.0

package perhost

import (
	"bytes"
	"crypto/tls"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func node(fleet, name string, seed byte) Node {
	return Node{Fleet: fleet, Name: name, Seed: bytes.Repeat([]byte{seed}, SeedSize)}
}

// What is made is left out of layers, too, is the same for one node, and another's for
// each other; what is an identity does not ask for the seed.
func TestFiles(t *testing.T) {
	made := map[string]string{}
	for _, row := range Table {
		if row.What == "" || len(row.Patterns) == 0 || (row.Instead == "") != (len(row.Files) > 0) {
			t.Errorf("%+v: one of Instead and Files says what a node has", row)
		}
		for _, f := range row.Files {
			if !slices.ContainsFunc(row.Patterns, func(p string) bool { ok, _ := path.Match("/"+p, f.Path); return ok }) {
				t.Errorf("%s is made, and stays in layers", f.Path)
			}
			get := func(n Node) string {
				t.Helper()
				data, err := f.Make(n)
				if err != nil || len(data) == 0 {
					t.Fatalf("%s: %q, %v", f.Path, data, err)
				}
				return string(data)
			}
			first := get(node("metal", "n1", 1))
			if first != get(node("metal", "n1", 1)) {
				t.Errorf("%s differs for one node", f.Path)
			}
			for _, other := range []Node{node("metal", "n2", 2), node("metal", "n11", 3), node("metalx", "n1", 4)} {
				if first == get(other) && (f.Path != "/etc/mailname" || other.Name != "n1") {
					t.Errorf("%s is the same for %s of %s", f.Path, other.Name, other.Fleet)
				}
			}
			if identity := row.Text != nil || strings.HasPrefix(f.Path, "/etc/iscsi/") || strings.HasPrefix(f.Path, "/etc/nvme/"); identity != (first == get(node("metal", "n1", 2))) {
				t.Errorf("%s: that another seed makes the same is %v", f.Path, !identity)
			} else if identity && !f.Always && row.Text == nil {
				t.Errorf("%s: a disk that an older layer has seeded keeps a name that every node has", f.Path)
			}
			if other := made[first]; other != "" {
				t.Errorf("%s is that of %s", f.Path, other)
			}
			made[first] = f.Path
		}
	}
}

func TestShared(t *testing.T) {
	tree := fstest.MapFS{"etc/munge/munge.key": {}, "etc/munge/other": {}, "etc/bind/rndc.key": {}, "var/lib/rabbitmq/.erlang.cookie": {}}
	if got := Shared(tree); !slices.Equal(got, []string{"/etc/munge/munge.key", "/var/lib/rabbitmq/.erlang.cookie"}) {
		t.Errorf("%q", got)
	}
}

// TestForms holds what others read to its form, and a name to its value: a later release must
// not give a node another.
func TestForms(t *testing.T) {
	n := node("metal", "n1", 1)
	n.Domain = "example.org"
	for _, row := range []struct {
		make func(Node) ([]byte, error)
		want string
	}{
		{initiator, "InitiatorName=iqn.1993-08.org.debian:01:IQN\n"},
		{hostNQN, "nqn.2014-08.org.nvmexpress:uuid:UUID\n"},
		{hostID, "UUID\n"},
		{rndc, "key \"rndc-key\" {\n\talgorithm hmac-sha256;\n\tsecret \"RNDC\";\n};\n"},
		{cookie, "COOKIE"},
		{mailname, "n1.example.org\n"},
		{func(n Node) ([]byte, error) { n.Domain = ""; return mailname(n) }, "n1\n"},
	} {
		got, err := row.make(n)
		want := strings.NewReplacer("IQN", wantIQN, "UUID", wantUUID, "RNDC", wantRNDC, "COOKIE", wantCookie).Replace(row.want)
		if err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	key, err := snakeoilKey(n)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := snakeoilCertificate(n)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil || pair.Leaf.VerifyHostname("n1") != nil || pair.Leaf.CheckSignatureFrom(pair.Leaf) == nil && pair.Leaf.IsCA {
		t.Errorf("snakeoil: %v, %+v", err, pair.Leaf)
	}
}

const wantIQN, wantUUID, wantRNDC, wantCookie = "8f68f9d8dc4f", "d18335cf-1f23-801c-94be-ab18359fd14d", "Njfdekxevo93e4dqM1CknCeuDs1LS1rQTm61bl+Uv3I=", "PDPRKDUTNVBIBEWLCUMVWPVPUOHOCURJ"
