// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// A loader's kernel that panics before /init must start over.
func TestScriptHasPanic(t *testing.T) {
	if s := ipxeScript("http://h", Loader{Args: []string{"quiet"}}.Line()); !strings.Contains(s, " quiet panic=30 || goto failed") {
		t.Errorf("boot.ipxe:\n%s", s)
	}
	if s := ipxeScript("", Loader{Args: []string{"panic=0"}}.Line()); strings.Contains(s, "panic=30") {
		t.Errorf("the site's own word does not count:\n%s", s)
	}
}

// TestLoadersKnowTheService: a loader is told where the nodes of its site report, where
// that is one place.
func TestLoadersKnowTheService(t *testing.T) {
	t.Chdir(t.TempDir())
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir("keys", 0o700), os.WriteFile("keys/operator.pub", sign.VerifierOf(key).PEM(), 0o600)); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nregistry: r.example/metal\n"
	for text, want := range map[string]string{
		"nodes: [{name: a}]\n": "",
		"machine: {agent: {report: {url: 'https://fleet.example/'}}}\nnodes: [{name: a}, {name: b}]\n":                                                                                  "https://fleet.example",
		"machine: {agent: {report: {registry: r.example/reports}}}\nnodes: [{name: a}]\n":                                                                                               "",
		"machine: {overrides: {hosts: [{name: b, conf: {agent: {report: {url: 'https://b.example'}}}}]}}\nnodes: [{name: a}, {name: b}]\n":                                              "https://b.example",
		"machine: {agent: {report: {url: 'https://a.example'}}, overrides: {hosts: [{name: b, conf: {agent: {report: {url: 'https://b.example'}}}}]}}\nnodes: [{name: a}, {name: b}]\n": "",
	} {
		s, report := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(head + text)}}, "site.yaml")
		if report.Err() != nil {
			t.Fatal(text, report.Problems)
		}
		if b, err := Bootstrap(s, Registry{}); err != nil || b.Hints != want {
			t.Errorf("%s: %q, want %q: %v", text, b.Hints, want, err)
		}
	}
}

// TestLoaderThatLacksAFeature: boot files that the loader among them would refuse are not written.
func TestLoaderThatLacksAFeature(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "boot")
	err := Write(t.Context(), nil, dir, Loader{Layer: release.Layer{Digest: "sha256:x"}, Bootstrap: spec.Bootstrap{Needs: []string{"later"}}})
	if err == nil || !strings.Contains(err.Error(), "layer sha256:x: its loader does not know later") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

func TestCarryIPXE(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "ipxe.efi"), []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	carried, err := CarryIPXE(from, to)
	if err != nil || !slices.Equal(carried, []string{"ipxe.efi"}) {
		t.Fatalf("carried %q, %v", carried, err)
	}
	info, err := os.Stat(filepath.Join(to, "ipxe.efi"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("servers cannot read it: %v, %v", info, err)
	}
	if carried, err := CarryIPXE(filepath.Join(from, "none"), to); carried != nil || err != nil {
		t.Errorf("from nowhere: %q, %v", carried, err)
	}
	if _, err := CarryIPXE(from, filepath.Join(to, "none")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}

// TestProxyWithPassword: site.cpio is given to everybody, so no password may be in it.
func TestProxyWithPassword(t *testing.T) {
	for proxy, good := range map[string]bool{"http://proxy:3128": true, "http://user:secret@proxy:3128": false, "http://user@proxy:3128": false, "proxy": false} {
		err := checkProxy(proxy)
		if (err == nil) != good {
			t.Errorf("%s: %v", proxy, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is printed: %v", err)
		}
	}
}

func TestNameStateDisk(t *testing.T) {
	const uuid = "0B0B0B0B-0000-4000-8000-000000000001"
	for _, test := range []struct {
		uuid string
		ask  *spec.NewStateDisk
		want string // of the error
	}{
		{"", nil, ""},
		{"", &spec.NewStateDisk{}, ""},
		{uuid, nil, ""},
		{"/dev/sda1", nil, "is not a partition UUID"},
		{uuid, &spec.NewStateDisk{}, "layer.stateDisk.create"},
	} {
		b := spec.Bootstrap{NewStateDisk: test.ask}
		err := NameStateDisk(&b, test.uuid)
		if test.want == "" && (err != nil || b.StateDisk != strings.ToLower(test.uuid)) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q beside %v: %q, %v; want %q", test.uuid, test.ask, b.StateDisk, err, test.want)
		}
	}
}
