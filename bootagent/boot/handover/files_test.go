// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// TestFilesAreThereBeforePID1 writes the overlay's files, keeps their originals
// for the journal, and goes on when one cannot be written.
func TestFilesAreThereBeforePID1(t *testing.T) {
	require.Root(t)
	n := newNode(t, t.TempDir(), false)
	for name, text := range map[string]string{"etc/chrony.conf": "of the layer\n", "etc/passwd": "root:x:0:0::/:/bin/sh\nchrony:x:104:104::/:/bin/false\n"} {
		if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n.Overlay.Items.Files = []spec.File{
		{Path: "/etc/chrony.conf", Content: "pool of the site\n", Owner: "chrony", Mode: "0640"},
		{Path: "/etc/chrony/extra/own.conf", Content: "x\n"},
		{Path: "/etc/unwritable", Owner: "nobody-here"},
	}
	n.Overlay.Items.Units = []spec.Unit{{Name: "own.service", Content: "[Service]\n[Install]\nWantedBy=multi-user.target\n", State: spec.UnitEnabled, Run: spec.RunStarted}}
	n.Overlay.Items.Modules = &spec.Modules{Load: []string{"br_netfilter"}, Blacklist: []string{"pcspkr"}}
	wrote, err := n.Do()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/etc/chrony.conf", "/etc/chrony/extra/own.conf", rules.ModulesLoadFile, rules.ModprobeFile,
		"/etc/systemd/system/own.service", "/etc/systemd/system/multi-user.target.wants/own.service"} {
		if !slices.Contains(wrote, name) {
			t.Errorf("%s is not among what was written: %q", name, wrote)
		}
	}
	// The service finds nothing to do, and can put the originals back.
	j := itemtest.Journal(t, t.TempDir())
	if err := j.Record(n.Originals...); err != nil {
		t.Fatal(err)
	}
	it := files.New(n.Overlay.Items.Files, n.path("/etc"), j)
	drift, err := it.Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse {
		t.Errorf("check after the handover: %+v, %v", drift, err)
	}
	own := modules.New(n.Overlay.Items.Modules, modules.Places{Etc: n.path("/etc"), Sys: n.path("/sys"), Proc: n.path("/proc"), Lib: n.path("/lib")}, nil, j)
	if drift, err := own.Check(t.Context()); err != nil || len(drift) != 1 || drift[0].Action != spec.ActionDefer {
		t.Errorf("modules after the handover: %+v, %v; want only that nothing loads them here", drift, err)
	}
	if err := own.Restore(t.Context(), j.Entries(modules.Name)); err != nil {
		t.Error(err)
	}
	if err := units.New(nil, n.Root, nil, j).Restore(t.Context(), j.Entries(units.Name)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(n.path("/etc/systemd/system/multi-user.target.wants")); !os.IsNotExist(err) {
		t.Errorf("a link of the units is left: %v", err)
	}
	if _, err := os.Stat(n.path(rules.ModprobeFile)); !os.IsNotExist(err) {
		t.Errorf("a file of the modules is left: %v", err)
	}
	if err := files.New(nil, n.path("/etc"), j).Restore(t.Context(), j.Entries(files.Name)); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(n.path("/etc/chrony.conf")); err != nil || string(data) != "of the layer\n" {
		t.Errorf("chrony.conf is %q, %v", data, err)
	}
	if _, err := os.Stat(n.path("/etc/chrony")); !os.IsNotExist(err) {
		t.Errorf("the directory that was made is left: %v", err)
	}
}

// TestSecretsAreThereBeforePID1: the loader opens them, and a soft-reboot leaves that to the
// agent, for which the units wait that name one.
func TestSecretsAreThereBeforePID1(t *testing.T) {
	require.Root(t)
	for _, later := range []bool{false, true} {
		n := newNode(t, t.TempDir(), true)
		n.SecretDir, n.SecretsLater = filepath.Join(t.TempDir(), "secret"), later
		key, err := secrets.Keys{State: n.State.Path()}.Ensure(t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		hash := "$6$salt$" + strings.Repeat("a", 86)
		for _, one := range [][2]string{{"db", "hunter2"}, {"hash", hash + "\n"}} {
			n.Overlay.Secrets = append(n.Overlay.Secrets, fixture.Seal(t, one[0], key.Recipient(), one[1]))
		}
		n.Overlay.Items.Files = []spec.File{{Path: "/etc/app/db", Secret: "db", Mode: "0440"}, {Path: "/etc/app/none", Secret: "none"}}
		n.Overlay.Items.Units = []spec.Unit{{Name: "app.service", DropIns: []spec.DropIn{{Name: "x", Content: "[Service]\nLoadCredential=db:/run/caisson/secret/db\n"}}}}
		n.Overlay.Items.Passwords = []spec.Password{{User: "ann", Secret: "hash"}, {User: "bob", Secret: "none"}}
		shadow := "root:*:20000::::::\nann:*:20000::::::\nbob:*:20000::::::\n"
		if err := os.MkdirAll(n.path("/etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.path("/etc/shadow"), []byte(shadow), 0o640); err != nil {
			t.Fatal(err)
		}
		wrote, err := n.Do()
		if err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(n.path("/etc/shadow"))
		if want := strings.Replace(shadow, "ann:*:", "ann:"+hash+":", 1); err != nil || string(now) != map[bool]string{false: want, true: shadow}[later] {
			t.Errorf("later %t: %s, %v", later, now, err)
		}
		if kept, err := json.Marshal(n.Originals); err != nil || strings.Contains(string(kept), hash) || strings.Contains(string(kept), `"passwords"`) == later || slices.Contains(wrote, "/etc/shadow") == later || slices.Contains(wrote, "ann") {
			t.Errorf("later %t: the originals are %s, %v; it wrote %q", later, kept, err, wrote)
		}
		link, err := os.Readlink(n.path("/etc/app/db"))
		if err != nil || !strings.HasPrefix(link, spec.SecretDir+"/.files/") {
			t.Errorf("later %t: %q, %v", later, link, err)
		}
		if _, err := os.Lstat(n.path("/etc/app/none")); !os.IsNotExist(err) {
			t.Errorf("later %t: a file without its secret is there: %v", later, err)
		}
		copied, err := os.ReadFile(n.SecretDir + strings.TrimPrefix(link, spec.SecretDir))
		if opened := string(copied) == "hunter2"; opened == later {
			t.Errorf("later %t: the copy has %q, %v", later, copied, err)
		}
		if _, err := os.Lstat(filepath.Join(n.SecretDir, "db")); (err == nil) == later {
			t.Errorf("later %t: %v", later, err)
		}
		order, _ := os.ReadFile(n.path("/etc/systemd/system/app.service.d/60-caisson-mounts.conf"))
		if waits := strings.Contains(string(order), "After=caisson-agent.service"); waits != later {
			t.Errorf("later %t: the unit waits: %t", later, waits)
		}
	}
}
