// SPDX-License-Identifier: Apache-2.0

package say

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// put writes files below a directory.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(root+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The image version comes from os-release: what runs, not what was recorded.
func TestImageVersion(t *testing.T) {
	h := Host{t.TempDir()}
	if got := h.ImageVersion(); got != "" {
		t.Errorf("%q of nothing", got)
	}
	for text, want := range map[string]string{"ID=debian\nIMAGE_VERSION=1\nIMAGE_VERSION=\"2026.11\"\n": "2026.11", "ID=debian\n": "", "IMAGE_VERSION=v2": "v2"} {
		put(t, h.Root, map[string]string{"/etc/os-release": text})
		if got := h.ImageVersion(); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// What a host lacks that only a layer brings is said with the command that does it there;
// what it has already is left out, but for accounts.
func TestCannot(t *testing.T) {
	h := Host{t.TempDir()}
	put(t, h.Root, map[string]string{
		"/var/lib/dpkg/status":  "Package: vim\nStatus: install ok installed\nVersion: 2:9\n\nPackage: nano\nStatus: deinstall ok config-files\nVersion: 7\n",
		"/etc/passwd":           "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n",
		"/etc/apparmor.d/usr.a": "profile a {}\n",
	})
	o := &spec.Overlay{NeedsLayer: []spec.NeedsLayer{
		{Item: "apt", Key: "vim", To: "2:9"}, {Item: "apt", Key: "nano", To: "absent"}, {Item: "apt", Key: "nano", To: "installed"},
		{Item: "apt", Key: "vim", To: "absent"}, {Item: "apt", Key: "vim", To: "2:10"},
		{Item: "uamlite", Key: "ann", To: "present"}, {Item: "uamlite", Key: "bob", To: "present"},
		{Item: "apparmor", Key: "usr.a", To: digest.Of([]byte("profile a {}\n"))}, {Item: "apparmor", Key: "usr.b", To: "sha256:00"},
	}}
	o.Layer = "sha256:bb"
	drift, err := h.Cannot(o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range drift {
		if d.Action != spec.ActionCannot {
			t.Errorf("%+v", d)
		}
		got = append(got, fmt.Sprintf("%s %s %q %s", d.Item, d.Key, d.From, d.Reason))
	}
	want := []string{
		`layer layer "" needs a layer; caisson did not boot this host: packages, accounts, profiles and permissions of the layer are not here`,
		`apt nano "" needs a layer; here: apt-get install nano`,
		`apt vim "2:9" needs a layer; here: apt-get purge vim`,
		`apt vim "2:9" needs a layer; here: apt-get install vim=2:10`,
		`uamlite ann "present" needs a layer; the account is here, its password, keys and sudo stay as they are`,
		`uamlite bob "" needs a layer; here: useradd --create-home --shell /bin/bash bob`,
		`apparmor usr.b "" needs a layer; here: write /etc/apparmor.d/usr.b, then apparmor_parser --replace it`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// Files that neither caisson nor a system at its usual work wrote are somebody's.
func TestForeign(t *testing.T) {
	upper := t.TempDir()
	put(t, upper, map[string]string{"/etc/ours": "", "/etc/by-hand": "", "/etc/resolv.conf": "", "/var/log/x": "", "/root/.bashrc": "", "/srv/x/y": ""})
	got, err := Foreign(upper, []string{"/etc/ours"})
	if err != nil || !slices.Equal(got, []string{"/etc/by-hand", "/srv/x/y"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Foreign(upper+"/none", nil); len(got) > 0 || err != nil {
		t.Errorf("of no upper: %q, %v", got, err)
	}
	for i := range 25 { // libvirt's own, and a file of an operator's in a directory below
		put(t, upper, map[string]string{fmt.Sprintf("/etc/libvirt/nwfilter/%02d.xml", i): ""})
	}
	put(t, upper, map[string]string{"/etc/libvirt/nwfilter/10/x": "", "/etc/zone": ""})
	if got, err := Foreign(upper, nil); err != nil || !slices.Equal(got, []string{"/etc/by-hand", "/etc/libvirt/nwfilter/", "/etc/libvirt/nwfilter/10/x", "/etc/ours", "/etc/zone", "/srv/x/y"}) {
		t.Errorf("%q, %v", got, err)
	}
	for i := range foreignLimit + 1 {
		put(t, upper, map[string]string{fmt.Sprintf("/srv/%d/x", i): ""})
	}
	if got, err := Foreign(upper, nil); len(got) != foreignLimit || err != nil {
		t.Errorf("%d of a tree, %v", len(got), err)
	}
}

// A trace has the steps of the first run and of the last; one that is damaged is begun
// again.
func TestTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	keep := func(step string, first bool) (said int) {
		t.Helper()
		if err := KeepTrace(file, []spec.Step{{Name: step}}, first, func(string, ...any) { said++ }); err != nil {
			t.Fatal(err)
		}
		return said
	}
	names := func() (all [2]string) {
		t.Helper()
		tr, err := ReadTrace(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, steps := range [][]spec.Step{tr.First, tr.Last} {
			for _, s := range steps {
				all[i] += s.Name
			}
		}
		return all
	}
	if said, got := keep("a", true), names(); said > 0 || got != [2]string{"a"} {
		t.Errorf("%q", got)
	}
	keep("b", false)
	if said, got := keep("c", false), names(); said > 0 || got != [2]string{"a", "c"} {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTrace(file); err == nil {
		t.Error("what is damaged was read")
	}
	if said, got := keep("d", false), names(); said != 1 || got != [2]string{"", "d"} {
		t.Errorf("%q", got)
	}
}

// A node that runs nothing yet is well; one that cannot say what it runs is not.
func TestWhyOfNothing(t *testing.T) {
	v := well()
	if w := Why(Nothing(v.Boot, "metal-a", nil), v.Boot, nil, nil); !w.Well || w.Fleet != "metal-a" || !w.Memory || w.Trouble != "" {
		t.Errorf("%+v", w)
	}
	v.Boot.Disk = "/dev/vda1"
	events := []spec.Event{{Event: spec.EventLost, Why: "it died"}}
	if w := Why(Nothing(v.Boot, "metal-a", os.ErrInvalid), v.Boot, events, os.ErrPermission); w.Well || w.Memory || w.Last == nil || w.Trouble != "permission denied" || w.Health != spec.HealthDegraded {
		t.Errorf("%+v", w)
	}
}
