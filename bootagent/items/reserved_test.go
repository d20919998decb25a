// SPDX-License-Identifier: Apache-2.0

package items

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// An overlay that was signed before a place was reserved, or by somebody who publishes
// without us: the node refuses the place by itself, for every kind.
func TestReservedPlacesOnTheNode(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/etc/systemd/system", 0o755))
	install := func(line string) spec.Items {
		return spec.Items{Units: []spec.Unit{{Name: "a.service", Content: "[Install]\n" + line + "\n", State: spec.UnitEnabled}}}
	}
	service := []spec.Service{{Name: "a", Unit: "a.service", Commit: strings.Repeat("1", 40), Directories: []spec.ServiceDirectory{{From: "a", To: "/etc/caisson/a"}}}}
	for what, c := range map[string]struct {
		kind     string
		want     spec.Items
		services []spec.Service
	}{
		"a file":       {"files", spec.Items{Files: []spec.File{{Path: "/etc/caisson/site.json"}}}, nil},
		"an account":   {"files", spec.Items{Files: []spec.File{{Path: "/etc/passwd"}}}, nil},
		"an owner":     {"perm", spec.Items{Perm: &spec.Perm{Paths: []spec.PermPath{{Path: "/var/lib/caisson", Owner: "nobody"}}}}, nil},
		"a way":        {"perm", spec.Items{Perm: &spec.Perm{Paths: []spec.PermPath{{Path: "/var/lib", Mode: "0777"}}}}, nil},
		"a mount":      {"mounts", spec.Items{Mounts: []spec.Mount{{ID: "a", Device: "tmpfs", Type: "tmpfs", Target: "/run/caisson"}}}, nil},
		"swap space":   {"swaps", spec.Items{Swaps: []spec.Swap{{Device: "/var/lib/caisson/swap"}}}, nil},
		"an alias":     {"units", install("Alias=caisson-agent.service"), nil},
		"a dependency": {"units", install("WantedBy=caisson-agent.service"), nil},
		"a drop-in":    {"units", spec.Items{Units: []spec.Unit{{Name: "a.service", DropIns: []spec.DropIn{{Name: "60-caisson-order", Content: "[Unit]\n"}}}}}, nil},
		"a service":    {"service", spec.Items{}, service},
	} {
		for _, it := range Table(c.want, Options{Journal: itemtest.Journal(t, t.TempDir()), Scopes: itemtest.Scopes, Etc: root + "/etc", State: root, Services: c.services}) {
			if it.Name() != c.kind {
				continue
			}
			drift, err := it.Check(t.Context())
			if err != nil || len(drift) == 0 {
				t.Errorf("%s: %+v, %v", what, drift, err)
			}
			for _, d := range drift {
				if d.Action != spec.ActionRefuse && !strings.Contains(d.Key, "60-caisson-service") {
					t.Errorf("%s: %+v", what, d)
				}
			}
		}
	}
}

// A pattern leaves out what is caisson's own.
func TestPatternsLeaveOutWhatIsReserved(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, ""), os.Mkdir("/run/caisson", 0o755), os.Mkdir("/run/other", 0o755))
	j := itemtest.Journal(t, t.TempDir())
	want := spec.Items{Perm: &spec.Perm{Paths: []spec.PermPath{{Path: "/run/*", Mode: "0700"}}}}
	if r := Reconcile(t.Context(), Table(want, Options{Journal: j, Scopes: itemtest.Scopes, Etc: t.TempDir(), State: t.TempDir()}), j); r.Err != nil || len(r.Drift) > 0 {
		t.Fatalf("%+v", r)
	}
	for name, mode := range map[string]os.FileMode{"/run/caisson": 0o755, "/run/other": 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}
