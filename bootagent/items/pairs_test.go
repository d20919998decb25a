// SPDX-License-Identifier: Apache-2.0

package items

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// want holds one setting of a pair.
type want struct {
	name  string
	items spec.Items
	who   []accounts.Change
	opens []spec.Secret
	from  []spec.Service
}

// trees are directories that stand for the images of services.
type trees string

func (trees) Ready(spec.Blob) error { return nil }

func (dir trees) Mount(image spec.Blob, at string) error {
	return unix.Mount(filepath.Join(string(dir), digest.Hex(image.Digest)), at, "", unix.MS_BIND, "")
}

// serves makes an image of one file, and returns it as a service that brings that to a path.
func (dir trees) serves(t *testing.T, unit, to, user string) spec.Service {
	t.Helper()
	image := spec.Blob{Digest: digest.Of([]byte(to)), Size: 1}
	in := filepath.Join(string(dir), digest.Hex(image.Digest))
	if err := cmp.Or(os.Mkdir(in, 0o755), os.WriteFile(filepath.Join(in, "conf"), []byte("of the service"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return spec.Service{Name: "app-" + digest.Hex(image.Digest)[:8], Unit: unit, Commit: strings.Repeat("1", 40), Image: image, User: user,
		Directories: []spec.ServiceDirectory{{From: "conf", To: to, File: true}}}
}

// boots makes what is there before the agent at a boot: what the loader writes, and then what is
// early or remote.
func boots(ctx context.Context, table []item.Item, j item.Journal) {
	for _, kinds := range [][]string{{files.Name, units.Name}, EarlyKernel, EarlyDisks} {
		Add(ctx, table, j, kinds)
	}
}

// ends is a context that is over after some questions to it.
type ends struct {
	context.Context
	left int
}

func (e *ends) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// What one setting of a generation makes, any other of it may need: each pair is applied in one
// pass, live, at a first run, and after a boot whose earlier moments were whole or cut, and nothing
// of it is left when both have gone.
func TestPairsApplyInOnePass(t *testing.T) {
	if !itemtest.InNamespaces(t, "mount", "ip") {
		return
	}
	// Neither a disk nor the host's own units, which a service is ordered among, are the subject, and both take time.
	for _, dir := range []string{os.TempDir(), "/usr/lib/systemd/system"} {
		if err := cmp.Or(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
	}
	etc, secret := filepath.Join(t.TempDir(), "etc"), filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{"passwd": "root:x:0:0::/root:/bin/sh\n", "group": "root:x:0:\n", "shadow": "root:*:::::::\n", "gshadow": "root:*::\n", "subuid": "", "subgid": "",
		"systemd/system/own.service": "[Service]\n", "security/limits.d/x": ""} {
		at := filepath.Join(etc, name)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmp.Or(unix.Mount(etc, "/etc", "", unix.MS_BIND, ""), unix.Mount("tmpfs", "/srv", "tmpfs", 0, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		unix.Mount("sysfs", "/sys", "sysfs", 0, ""), unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields("link add pair0 numrxqueues 4 numtxqueues 4 type veth peer name pair1 numrxqueues 4 numtxqueues 4")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	row := func(database, text string) accounts.Change {
		name, _, _ := strings.Cut(text, ":")
		return accounts.Change{Key: database + ":" + name, To: accounts.Value{Kind: "row", Row: text}}
	}
	mount := func(at, device, fstype string, options ...string) spec.Items {
		return spec.Items{Mounts: []spec.Mount{{ID: filepath.Base(at), Device: device, Target: at, Type: fstype, Options: options}}}
	}
	store := trees(t.TempDir())
	all := []want{
		{name: "a file system", items: mount("/srv/data", "tmpfs", "tmpfs", "size=1m")},
		{name: "a bind of it", items: mount("/srv/a", "/srv/data", "none", "bind")},
		{name: "a file system in it", items: mount("/srv/data/in/it", "tmpfs", "tmpfs", "size=1m")},
		{name: "a bind of what is in it", items: mount("/srv/b", "/srv/data/in/it", "none", "bind")},
		{name: "an overlay on it", items: mount("/srv/c", "overlay", "overlay", "ro", "lowerdir=/srv/data/in:/srv/d")},
		{name: "a user", who: []accounts.Change{row("/etc/passwd", "ops:x:1500:1500::/home/ops:/bin/sh"), row("/etc/group", "ops:x:1500:"), row("/etc/shadow", "ops:!:::::::")}},
		{name: "a file of the user", items: spec.Items{Files: []spec.File{{Path: "/etc/ops.conf", Content: "x", Owner: "ops", Group: "ops"}}}},
		{name: "a file system of the user", items: mount("/srv/d", "tmpfs", "tmpfs", "size=1m", "uid=ops", "gid=ops", "mode=0750")},
		{name: "a bind of that", items: mount("/srv/0", "/srv/d", "none", "bind")},
		{name: "owners of paths", items: spec.Items{Perm: &spec.Perm{Paths: []spec.PermPath{{Path: "/srv/data", Owner: "ops", Mode: "0700"}}}}},
		{name: "a template", items: spec.Items{Units: []spec.Unit{{Name: "own@.service", Content: "[Service]\n[Install]\nWantedBy=sys-%i.device\nAlso=other.service\n"}}}},
		{name: "an instance", items: spec.Items{Units: []spec.Unit{{Name: "own@a.service", State: spec.UnitEnabled}}}},
		{name: "a unit that comes along", items: spec.Items{Units: []spec.Unit{{Name: "other.service", Content: "[Service]\n[Install]\nWantedBy=a.target\n"}}}},
		{name: "a drop-in of the template", items: spec.Items{Units: []spec.Unit{{Name: "own@.service", DropIns: []spec.DropIn{{Name: "x", Content: "[Install]\nRequiredBy=b.target\n"}}}}}},
		{name: "a unit of the user", items: spec.Items{Units: []spec.Unit{{Name: "users.service", Content: "[Service]\nUser=ops\n[Install]\nWantedBy=srv-d.mount\n", State: spec.UnitEnabled}}}},
		{name: "a limit of the user", items: spec.Items{Limits: []spec.Limit{{ID: "ops", Domain: "ops", Type: "hard", Item: "core", Value: "0"}}}},
		{name: "a file of a secret, of the user", opens: []spec.Secret{{Name: "s", Sealed: "x"}}, items: spec.Items{Files: []spec.File{{Path: "/etc/ops.secret", Secret: "s", Owner: "ops", Mode: "0400"}}}},
		{name: "a script", items: spec.Items{Exec: []spec.Exec{{Name: "10-x", Data: "#!/bin/sh\ntest ! -e /srv/data/in/it || touch /srv/data/in/it/x\n", Rerun: "once_successfully"}}}},
		{name: "a kernel parameter", items: spec.Items{Sysctl: []spec.Sysctl{{Key: "net/ipv4/conf/all/rp_filter", Value: "2"}}}},
		{name: "a password of the user", opens: []spec.Secret{{Name: "p", Sealed: "$6$saltsalt$8RWsOfwR6M6PpnoeQiEiWzNTPo1f0HjVYjDnLZhGx16aBFRkeqiHAzfXP/LgrOWMBMXqiU2pLrXsSOHNUyUm91"}}, items: spec.Items{Passwords: []spec.Password{{User: "ops", Secret: "p"}}}},
		{name: "an attribute of sysfs", items: spec.Items{Sysfs: []spec.Sysfs{{Path: "/sys/class/net/pair0/tx_queue_len", Value: "123"}}}},
		{name: "options of a module", items: spec.Items{Modules: &spec.Modules{Parameters: []spec.ModuleParameter{{Module: "dummy", Name: "numdummies", Value: "2"}}, Blacklist: []string{"pcspkr"}}}},
		{name: "a service", from: []spec.Service{store.serves(t, "own.service", "/etc/made/app/conf", "")}},
		{name: "a service of the user, in a file system", from: []spec.Service{store.serves(t, "users.service", "/srv/data/app/conf", "ops")}},
		{name: "a mask", items: spec.Items{Units: []spec.Unit{{Name: "own.service", State: spec.UnitMasked}}}},
	}
	table := func(j item.Journal, pair ...want) []item.Item {
		var all spec.Items
		var who accounts.Want
		var opens []spec.Secret
		var from []spec.Service
		for _, w := range pair {
			all.Mounts = append(all.Mounts, w.items.Mounts...)
			all.Files = append(all.Files, w.items.Files...)
			all.Units = append(all.Units, w.items.Units...)
			all.Limits = append(all.Limits, w.items.Limits...)
			who.Changes = append(who.Changes, w.who...)
			all.Perm = cmp.Or(all.Perm, w.items.Perm)
			all.Exec = append(all.Exec, w.items.Exec...)
			all.Sysctl = append(all.Sysctl, w.items.Sysctl...)
			all.Modules = cmp.Or(all.Modules, w.items.Modules)
			all.Sysfs = append(all.Sysfs, w.items.Sysfs...)
			all.Passwords = append(all.Passwords, w.items.Passwords...)
			opens = append(opens, w.opens...)
			from = append(from, w.from...)
		}
		var s units.Systemd
		return Table(all, Options{Journal: j, Scopes: testScopes, State: t.TempDir(), Systemd: s, Accounts: who, Secrets: opens, SecretDir: secret, Services: from, Images: store,
			OpenSecret: func(s spec.Secret) ([]byte, error) { return []byte(s.Sealed), nil }})
	}
	left := func(r Result) (left []string) {
		for _, d := range r.Drift {
			left = append(left, d.Item+" "+d.Key+": "+d.Action+" "+d.Reason)
		}
		return left
	}
	cuts := 0
	for x, a := range all {
		for y, b := range all {
			ways := map[string]func(next, previous []item.Item, j item.Journal) Result{
				"first run": func(next, _ []item.Item, j item.Journal) Result { return Reconcile(t.Context(), next, j) },
				"live": func(next, previous []item.Item, j item.Journal) Result {
					return Transact(t.Context(), next, previous, j, nil)
				},
				"boot": func(next, _ []item.Item, j item.Journal) Result {
					boots(t.Context(), next, j)
					return Reconcile(t.Context(), next, j)
				},
				"boot, cut": func(next, _ []item.Item, j item.Journal) Result {
					cut := &ends{Context: t.Context(), left: (7*x + 3*y) % 23} // between its writes
					boots(cut, next, j)
					Reconcile(cut, next, j)
					if cut.left < 0 {
						cuts++
					}
					return Reconcile(t.Context(), next, j)
				},
			}
			if x > y { // the same settings
				delete(ways, "boot")
				delete(ways, "boot, cut")
			}
			for way, run := range ways {
				pair := []want{a, b}
				if a.name == b.name {
					pair = pair[:1]
				}
				j := itemtest.Journal(t, t.TempDir())
				r := run(table(j, pair...), table(j), j)
				if r.Err != nil && strings.HasPrefix(r.Err.Error(), "nothing was changed") && slices.ContainsFunc(r.Drift, func(d spec.Drift) bool { return d.Action == spec.ActionRefuse }) {
					continue
				}
				// What stays is deferred or refused, and names what is lacking; another look finds nothing more to do.
				for _, d := range r.Drift {
					if d.Action != spec.ActionDefer && d.Action != spec.ActionRefuse {
						t.Errorf("%s: %s and %s: %v, %v", way, a.name, b.name, left(r), r.Err)
					}
				}
				if again := Reconcile(t.Context(), table(j, pair...), j); !r.RolledBack && !slices.Equal(left(r), left(again)) {
					t.Errorf("%s: %s and %s: one pass leaves %v, and another %v", way, a.name, b.name, left(r), left(again))
				}
				if gone := Reconcile(t.Context(), table(j), j); gone.Err != nil || len(gone.Drift) > 0 {
					t.Fatalf("%s: %s and %s do not leave: %v, %v", way, a.name, b.name, left(gone), gone.Err)
				}
			}
		}
	}
	if cuts < 50 {
		t.Errorf("%d boots were cut", cuts)
	}
	for _, way := range []func(next []item.Item, j item.Journal) Result{
		func(next []item.Item, j item.Journal) Result { return Reconcile(t.Context(), next, j) },
		func(next []item.Item, j item.Journal) Result {
			return Transact(t.Context(), next, table(j), j, nil)
		},
	} {
		j := itemtest.Journal(t, t.TempDir())
		if r := way(table(j, all...), j); r.Err != nil || len(r.Drift) > 0 {
			t.Errorf("all of them: %v, %v", left(r), r.Err)
		}
		var st unix.Stat_t
		if err := unix.Stat("/srv/0", &st); err != nil || st.Uid != 1500 || st.Mode&0o7777 != 0o750 {
			t.Errorf("the user's file system: %d %o, %v", st.Uid, st.Mode, err)
		}
		if gone := Reconcile(t.Context(), table(j), j); gone.Err != nil || len(gone.Drift) > 0 {
			t.Fatalf("all of them do not leave: %v, %v", left(gone), gone.Err)
		}
	}
}
