// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// world is a root, and a systemd that starts and stops what it is told.
type world struct {
	t     *testing.T
	root  string
	since map[string]time.Time // of units that run
	jobs  []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	require.Root(t)
	w := &world{t: t, root: t.TempDir(), since: map[string]time.Time{}}
	for name, text := range map[string]string{
		"usr/lib/systemd/system/ssh.service":    "[Unit]\nDescription=x\n[Service]\nExecStart=/usr/sbin/sshd -D\n[Install]\nWantedBy=multi-user.target\nAlias=sshd.service\n",
		"usr/lib/systemd/system/cron.service":   "[Service]\n[Install]\nWantedBy=multi-user.target\n",
		"usr/lib/systemd/system/getty@.service": "[Install]\nWantedBy=getty.target\n",
		"usr/lib/systemd/system/static.service": "[Service]\n",
		"usr/lib/systemd/system/two.service":    "[Install]\n# WantedBy=no.target\nWantedBy=a.target \\\n  b.target\nAlso=two.socket gone.socket\n",
		"usr/lib/systemd/system/two.socket":     "[Install]\nRequiredBy=sockets.target\n",
		"etc/systemd/system/own.service":        "[Service]\nExecStart=/old\n",
	} {
		w.write(name, text)
	}
	for name, to := range map[string]string{
		"etc/systemd/system/multi-user.target.wants/ssh.service": "/lib/systemd/system/ssh.service",
		"etc/systemd/system/sshd.service":                        "/lib/systemd/system/ssh.service",
	} {
		if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, w.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now().Add(-time.Hour) // the times of files are less exact than the clock
	w.since["ssh.service"], w.since["cron.service"] = began, began
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// State, Do and Reload implement Systemd.
func (w *world) State(_ context.Context, unit string) (string, time.Time, error) {
	if since, ok := w.since[unit]; ok {
		return Active, since, nil
	}
	return Inactive, time.Time{}, nil
}

func (w *world) Do(_ context.Context, job, unit string) error {
	w.jobs = append(w.jobs, job+" "+unit)
	if delete(w.since, unit); job != "stop" {
		w.since[unit] = time.Now()
	}
	return nil
}

// Outdated implements Systemd: all that runs since before has old limits.
func (w *world) Outdated(_ context.Context, limits []string, since time.Time) (names []string, err error) {
	for name, began := range w.since {
		if began.Before(since) && slices.Contains(limits, "NOFILE") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (w *world) Reload(context.Context) error {
	w.jobs = append(w.jobs, "reload")
	return nil
}

// took returns the jobs since it was asked last.
func (w *world) took() string {
	jobs := strings.Join(w.jobs, ", ")
	w.jobs = nil
	return jobs
}

func (w *world) snapshot() string {
	var out strings.Builder
	err := filepath.WalkDir(w.path("etc"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprint(&out, strings.TrimPrefix(path, w.root))
		switch d.Type() {
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", data)
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " -> %s", to)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.String() + strings.Join(slices.Sorted(maps.Keys(w.since)), " ")
}

// run goes to want as the reconciler does.
func (w *world) run(j item.Journal, want ...spec.Unit) []spec.Drift {
	w.t.Helper()
	it := New(want, w.root, w, j)
	check := func() []spec.Drift {
		drift, err := it.Check(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		return drift
	}
	first := check()
	left := slices.DeleteFunc(j.Entries(Name), func(e item.Entry) bool {
		return !slices.ContainsFunc(first, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key })
	})
	if len(left) > 0 {
		if err := it.Restore(w.t.Context(), left); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := it.Remember(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if due := slices.DeleteFunc(check(), func(d spec.Drift) bool { return d.Action != spec.ActionAdd && d.Action != spec.ActionChange }); len(due) > 0 {
		if err := it.Apply(w.t.Context(), due); err != nil {
			w.t.Fatal(err)
		}
	}
	return check()
}

func TestConformance(t *testing.T) {
	want := []spec.Unit{
		{Name: "cron.service", State: spec.UnitMasked, Run: spec.RunStopped},
		{Name: "exporter.service", Content: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n", State: spec.UnitEnabled, Run: spec.RunStarted},
		{Name: "own.service", Content: "[Service]\nExecStart=/new\n", DropIns: []spec.DropIn{{Name: "10-x", Content: "[Unit]\n"}}},
		{Name: "ssh.service", State: spec.UnitDisabled, DropIns: []spec.DropIn{{Name: "60-caisson-limits", Content: "[Service]\nLimitNOFILE=4\n"}}, Restart: true},
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		w := newWorld(t)
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, w.root, w, j) },
			Empty:    func(j item.Journal) item.Item { return New(nil, w.root, w, j) },
			Snapshot: w.snapshot,
		}
	})
}

// The links are those that systemctl(1) makes.
func TestEnable(t *testing.T) {
	for _, c := range []struct {
		unit spec.Unit
		want string
	}{
		{spec.Unit{Name: "cron.service"}, "multi-user.target.wants/cron.service -> /usr/lib/systemd/system/cron.service"},
		{spec.Unit{Name: "getty@ttyS0.service"}, "getty.target.wants/getty@ttyS0.service -> /usr/lib/systemd/system/getty@.service"},
		{spec.Unit{Name: "two.service"}, "a.target.wants/two.service -> /usr/lib/systemd/system/two.service\nb.target.wants/two.service -> /usr/lib/systemd/system/two.service\n" +
			"sockets.target.requires/two.socket -> /usr/lib/systemd/system/two.socket"},
		{spec.Unit{Name: "new.timer", Content: "[Timer]\n[Install]\nWantedBy=timers.target\n"}, "timers.target.wants/new.timer -> /etc/systemd/system/new.timer"},
		{spec.Unit{Name: "ssh.service"}, ""}, // the layer enables it
	} {
		w := newWorld(t)
		c.unit.State = spec.UnitEnabled
		before := strings.Split(w.snapshot(), "\n")
		if left := w.run(itemtest.Journal(t, t.TempDir()), c.unit); len(left) > 0 {
			t.Errorf("%s: %+v", c.unit.Name, left)
		}
		var links []string
		for _, line := range strings.Split(w.snapshot(), "\n") {
			if !slices.Contains(before, line) && strings.Contains(line, "->") {
				links = append(links, strings.TrimPrefix(line, "/etc/systemd/system/"))
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(links, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.unit.Name, diff)
		}
	}
}

func TestDisableAndBack(t *testing.T) {
	w := newWorld(t)
	j := itemtest.Journal(t, t.TempDir())
	before := w.snapshot()
	if left := w.run(j, spec.Unit{Name: "ssh.service", State: spec.UnitDisabled}); len(left) > 0 {
		t.Errorf("%+v", left)
	}
	for _, name := range []string{"etc/systemd/system/multi-user.target.wants/ssh.service", "etc/systemd/system/sshd.service"} {
		if _, err := os.Lstat(w.path(name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Enabled by this item where the layer had enabled it, and then not wanted at all.
	if left := w.run(j, spec.Unit{Name: "ssh.service", State: spec.UnitEnabled}); len(left) > 0 {
		t.Errorf("%+v", left)
	}
	if left := w.run(j); len(left) > 0 || len(j.Entries(Name)) > 0 {
		t.Errorf("%+v, %+v", left, j.Entries(Name))
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestCheckSays(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		unit           spec.Unit
		action, reason string
	}{
		{spec.Unit{Name: "static.service", State: spec.UnitEnabled}, spec.ActionRefuse, "has no [Install]"},
		{spec.Unit{Name: "absent.service", State: spec.UnitEnabled}, spec.ActionDefer, "no such unit"},
		{spec.Unit{Name: "caisson-agent.service", Run: spec.RunStopped}, spec.ActionRefuse, "caisson's own"},
		{spec.Unit{Name: "../x.service", Content: "[Unit]\n"}, spec.ActionRefuse, "not the name of a unit"},
		{spec.Unit{Name: "a.service", DropIns: []spec.DropIn{{Name: "../../b", Content: "[Unit]\n"}}}, spec.ActionRefuse, "cannot be used as a name"},
		{spec.Unit{Name: "bad.service", Content: "[Install]\nWantedBy=../../x\n", State: spec.UnitEnabled}, spec.ActionRefuse, "not the name of a unit"},
	} {
		drift, err := New([]spec.Unit{c.unit}, w.root, w, itemtest.Journal(t, t.TempDir())).Check(t.Context())
		if err != nil || len(drift) == 0 {
			t.Fatalf("%s: %+v, %v", c.unit.Name, drift, err)
		}
		if d := drift[len(drift)-1]; d.Action != c.action || !strings.Contains(d.Reason, c.reason) {
			t.Errorf("%s: %+v", c.unit.Name, d)
		}
	}
	// Where systemd does not run, files are kept all the same.
	j := itemtest.Journal(t, t.TempDir())
	it := New([]spec.Unit{{Name: "a.service", Content: "[Service]\n", Run: spec.RunStarted}}, w.root, nil, j)
	drift, err := it.Check(t.Context())
	if err != nil || len(drift) != 2 || drift[1].Action != spec.ActionDefer {
		t.Fatalf("%+v, %v", drift, err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.path("etc/systemd/system/a.service")); err != nil {
		t.Error(err)
	}
	if err := New(nil, w.root, nil, j).Restore(t.Context(), j.Entries(Name)); err != nil || len(j.Entries(Name)) > 0 {
		t.Errorf("%v, %+v", err, j.Entries(Name))
	}
}

// A unit that runs since before its files changed is named, or restarted.
func TestOldSettings(t *testing.T) {
	w := newWorld(t)
	j := itemtest.Journal(t, t.TempDir())
	u := spec.Unit{Name: "ssh.service", DropIns: []spec.DropIn{{Name: "60-caisson-limits", Content: "[Service]\nLimitNOFILE=4\n"}}}
	left := w.run(j, u)
	if len(left) != 1 || left[0].Action != spec.ActionDefer || !strings.Contains(left[0].Reason, "old settings until it is restarted") || w.took() != "reload" {
		t.Errorf("%+v", left)
	}
	u.Restart = true
	if left := w.run(j, u); len(left) > 0 || w.took() != "restart ssh.service" {
		t.Errorf("%+v", left)
	}
	if left := w.run(j, u); len(left) > 0 || w.took() != "" {
		t.Errorf("again: %+v", left)
	}
	// A clock that was set back says nothing about which is newer.
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(w.path("etc/systemd/system/ssh.service.d/60-caisson-limits.conf"), later, later); err != nil {
		t.Fatal(err)
	}
	if left := w.run(j, u); len(left) > 0 || w.took() != "" {
		t.Errorf("with a file of the future: %+v", left)
	}
}

// What ran before goes on running; what runs because of this item ends with it.
func TestRunComesBack(t *testing.T) {
	w := newWorld(t)
	j := itemtest.Journal(t, t.TempDir())
	w.run(j, spec.Unit{Name: "cron.service", Run: spec.RunStarted}, spec.Unit{Name: "static.service", Run: spec.RunStarted})
	if got := w.took(); got != "start static.service" {
		t.Errorf("jobs %q", got)
	}
	delete(w.since, "cron.service") // somebody stops it
	w.run(j, spec.Unit{Name: "cron.service", Run: spec.RunStarted}, spec.Unit{Name: "static.service", Run: spec.RunStarted})
	if got := w.took(); got != "start cron.service" {
		t.Errorf("jobs %q", got)
	}
	if w.run(j); w.took() != "stop static.service" || len(j.Entries(Name)) > 0 {
		t.Errorf("%+v", j.Entries(Name))
	}

	// At a boot the loader writes; systemd starts what is enabled, and nobody notes it.
	booted := New([]spec.Unit{{Name: "new.service", Content: "[Service]\n[Install]\nWantedBy=multi-user.target\n", State: spec.UnitEnabled, Run: spec.RunStarted}}, w.root, nil, j)
	drift, err := booted.Check(t.Context())
	if err == nil {
		err = booted.Apply(t.Context(), drift)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.since["new.service"] = time.Now()
	if left := w.run(j, booted.want...); len(left) > 0 || w.took() != "" {
		t.Errorf("%+v", left)
	}
	// Not to be enabled any more is not to be stopped.
	w.run(j, spec.Unit{Name: "new.service", Content: booted.want[0].Content})
	if got := w.took(); got != "reload" {
		t.Errorf("jobs %q", got)
	}
	if w.run(j); w.took() != "stop new.service, reload" {
		t.Errorf("%+v", w.since)
	}
}

// Limits of all services are a file of systemd's own, of which it is told; which services
// still have those of before is said, and nothing is asked of them.
func TestLimitsOfAllServices(t *testing.T) {
	w := newWorld(t)
	j := itemtest.Journal(t, t.TempDir())
	before := w.snapshot()
	u := spec.Unit{Name: "system.conf", DropIns: []spec.DropIn{{Name: "60-caisson-limits", Content: "[Manager]\nDefaultLimitNOFILE=4096:8192\n"}}}
	left := w.run(j, u)
	want := []spec.Drift{{Item: Name, Key: "system.conf", From: "with the limits of before: cron.service ssh.service", To: "restarted", Action: spec.ActionReport}}
	if diff := cmp.Diff(want, left); diff != "" || w.took() != "reload" {
		t.Errorf("jobs, and (-want +got):\n%s", diff)
	}
	if text, err := os.ReadFile(w.path("etc/systemd/system.conf.d/60-caisson-limits.conf")); err != nil || string(text) != u.DropIns[0].Content {
		t.Errorf("%q, %v", text, err)
	}
	for name := range w.since {
		w.since[name] = time.Now().Add(time.Second) // they were restarted
	}
	if left := w.run(j, u); len(left) > 0 || w.took() != "" {
		t.Errorf("%+v", left)
	}
	if left := w.run(j); len(left) > 0 || w.took() != "reload" || w.snapshot() != before {
		t.Errorf("%+v\n%s", left, w.snapshot())
	}
}
