// SPDX-License-Identifier: Apache-2.0

package units_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// The real systemd: a unit that was not there is written, started, given a limit,
// restarted for it, started again after somebody stopped it, and gone again.
func TestSystemd(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	root := t.TempDir()
	own := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/run/units", own, "", unix.MS_BIND, ""); err != nil { // where this systemd looks
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(own, 0); err != nil {
			t.Error(err)
		}
	})
	j := itemtest.Journal(t, t.TempDir())
	ctx, m := t.Context(), process.Manager{}
	run := func(want ...spec.Unit) []spec.Drift {
		t.Helper()
		it := units.New(want, root, m, j)
		look := func() []spec.Drift {
			drift, err := it.Check(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return drift
		}
		var left []item.Entry
		for _, d := range look() {
			for _, e := range j.Entries(units.Name) {
				if d.Key == e.Key && d.Action == spec.ActionRemove {
					left = append(left, e)
				}
			}
		}
		if err := it.Restore(ctx, left); err != nil {
			t.Fatal(err)
		}
		if due := look(); len(due) > 0 {
			if err := it.Apply(ctx, due); err != nil {
				t.Fatal(err)
			}
		}
		return look()
	}
	state := func(want string) {
		t.Helper()
		if got, _, err := m.State(ctx, "sleeper.service"); err != nil || got != want {
			t.Fatalf("sleeper is %q, %v, want %q", got, err, want)
		}
	}
	limit := func() string {
		t.Helper()
		pids, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pids {
			if line, err := os.ReadFile(p); err == nil && strings.HasPrefix(string(line), "/bin/sleep\x0086399\x00") {
				text, err := os.ReadFile(filepath.Join(filepath.Dir(p), "limits"))
				if err != nil {
					t.Fatal(err)
				}
				for l := range strings.Lines(string(text)) {
					if strings.HasPrefix(l, "Max open files") {
						return strings.Fields(l)[3]
					}
				}
			}
		}
		return ""
	}

	u := spec.Unit{Name: "sleeper.service", Run: spec.RunStarted, State: spec.UnitEnabled,
		Content: "[Unit]\nDefaultDependencies=no\n[Service]\nType=exec\nExecStart=/bin/sleep 86399\n[Install]\nWantedBy=basic.target\n"}
	if left := run(u); len(left) > 0 {
		t.Fatalf("%+v", left)
	}
	state(units.Active)
	u.DropIns = []spec.DropIn{{Name: "60-caisson-limits", Content: "[Service]\nLimitNOFILE=77\n"}}
	if left := run(u); len(left) != 1 || left[0].Action != spec.ActionDefer || limit() == "77" {
		t.Fatalf("%+v, limit %s: the running one should be named", left, limit())
	}
	u.Restart = true
	if left := run(u); len(left) > 0 || limit() != "77" {
		t.Fatalf("%+v, limit %s", left, limit())
	}
	if err := m.Do(ctx, "stop", "sleeper.service"); err != nil {
		t.Fatal(err)
	}
	if left := run(u); len(left) > 0 {
		t.Fatalf("%+v", left)
	}
	state(units.Active)
	if left := run(); len(left) > 0 || len(j.Entries(units.Name)) > 0 {
		t.Fatalf("%+v, %+v", left, j.Entries(units.Name))
	}
	state(units.Inactive)
	if err := m.Do(ctx, "start", "sleeper.service"); err == nil {
		t.Error("systemd still knows the unit")
	}

	// Limits of all services: the one that runs is named, until it is started again.
	conf := filepath.Join(root, "etc/systemd/system.conf.d")
	if err := errors.Join(os.MkdirAll(conf, 0o755), os.MkdirAll("/run/systemd/system.conf.d", 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/run/systemd/system.conf.d", conf, "", unix.MS_BIND, ""); err != nil { // where this systemd looks, too
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(conf, 0); err != nil {
			t.Error(err)
		}
	})
	u = spec.Unit{Name: "sleeper.service", Run: spec.RunStarted, Content: "[Unit]\nDefaultDependencies=no\n[Service]\nType=exec\nExecStart=/bin/sleep 86399\n"}
	if left := run(u); len(left) > 0 {
		t.Fatalf("%+v", left)
	}
	all := spec.Unit{Name: "system.conf", DropIns: []spec.DropIn{{Name: "60-caisson-limits", Content: "[Manager]\nDefaultLimitNOFILE=79:79\n"}}}
	if left := run(u, all); len(left) != 1 || left[0].Action != spec.ActionReport || !strings.Contains(left[0].From, "sleeper.service") || limit() == "79" {
		t.Fatalf("%+v, limit %s: the running one should be named", left, limit())
	}
	if err := m.Do(ctx, "restart", "sleeper.service"); err != nil {
		t.Fatal(err)
	}
	if left := run(u, all); len(left) > 0 && strings.Contains(left[0].From, "sleeper.service") || limit() != "79" {
		t.Fatalf("%+v, limit %s", left, limit())
	}
	if left := run(); len(left) > 0 {
		t.Fatalf("%+v", left)
	}

	// A template has no state, and is kept all the same.
	if left := run(spec.Unit{Name: "t@.service", Content: "[Service]\nExecStart=/bin/true\n"}); len(left) > 0 {
		t.Errorf("%+v", left)
	}
	// One that runs and ends cannot be kept running; one that remains active can.
	once := spec.Unit{Name: "once.service", Run: spec.RunStarted, Content: "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/true\n"}
	if left := run(once); len(left) != 1 || left[0].Action != spec.ActionRefuse {
		t.Errorf("%+v", left)
	}
	once.Content += "RemainAfterExit=yes\n"
	if left := run(once); len(left) > 0 {
		t.Errorf("%+v", left)
	}
	if left := run(); len(left) > 0 {
		t.Errorf("%+v", left)
	}
}
