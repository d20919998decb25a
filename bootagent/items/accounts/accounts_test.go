// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// tree is files by path; a path that ends in / is a directory.
type tree map[string]string

// with returns a tree with other files in it; "-" takes one out.
func (f tree) with(other tree) tree {
	out := tree{}
	for _, m := range []tree{f, other} {
		for name, text := range m {
			if out[name] = text; text == "-" {
				delete(out, name)
			}
		}
	}
	return out
}

func (f tree) write(t *testing.T, dir string) string {
	t.Helper()
	for name, text := range f {
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			mode := os.FileMode(0o644)
			if strings.Contains(name, "shadow") || strings.Contains(name, "sudoers.d/") {
				mode = 0o440
			}
			err = os.WriteFile(at, []byte(text), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func snapshot(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == ".pwd.lock" {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&out, "%s %v %d:%d", strings.TrimPrefix(name, root), info.Mode(), st.Uid, st.Gid)
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "\n%s", data)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// stacked has ann and bob; wanted has bob with another key, password and group, and cem
// instead of ann.
var (
	stacked = tree{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nann:x:1001:1001::/home/ann:/bin/bash\nbob:x:1002:1002::/home/bob:/bin/bash\n",
		"etc/group":         "root:x:0:\nadm:x:4:ann\nsudo:x:27:ann,bob\nann:x:1001:\nbob:x:1002:\n",
		"etc/shadow":        "root:*:20000:0:99999:7:::\nann:$6$a:20000:0:99999:7:::\nbob:$6$b:20000:0:99999:7:::\n",
		"etc/gshadow":       "root:*::\nadm:*::ann\nsudo:*::ann,bob\nann:!::\nbob:!::\n",
		"etc/subuid":        "ann:165536:65536\nbob:231072:65536\n",
		"etc/subgid":        "ann:165536:65536\nbob:231072:65536\n",
		"home/ann/.profile": "# profile\n", "home/bob/.profile": "# profile\n",
		"etc/ssh/authorized_keys.d/ann": "ssh-ed25519 A ann\n", "etc/ssh/authorized_keys.d/bob": "ssh-ed25519 B bob\n",
		"etc/sudoers.d/caisson-ann": "ann ALL=(ALL) NOPASSWD:ALL\n",
	}
	wanted = stacked.with(tree{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nbob:x:1002:1002::/home/bob:/bin/zsh\ncem:x:1003:1003::/home/cem:/bin/bash\n",
		"etc/group":         "root:x:0:\nadm:x:4:bob\nsudo:x:27:bob,cem\nbob:x:1002:\ncem:x:1003:\n",
		"etc/shadow":        "root:*:20000:0:99999:7:::\nbob:$6$new:20100:0:99999:7:::\ncem:$6$c:20100:0:99999:7:::\n",
		"etc/gshadow":       "root:*::\nadm:*::bob\nsudo:*::bob,cem\nbob:!::\ncem:!::\n",
		"etc/subuid":        "bob:231072:65536\ncem:296608:65536\n",
		"etc/subgid":        "bob:231072:65536\ncem:296608:65536\n",
		"home/ann/.profile": "-", "home/cem/.profile": "# profile\n", "home/cem/.config/": "",
		"etc/ssh/authorized_keys.d/ann": "-", "etc/ssh/authorized_keys.d/bob": "ssh-ed25519 B2 bob\n", "etc/ssh/authorized_keys.d/cem": "ssh-ed25519 C cem\n",
		"etc/sudoers.d/caisson-ann": "-", "etc/sudoers.d/caisson-cem": "cem ALL=(ALL) NOPASSWD:ALL\n",
		"etc/ssh/sshd_config.d/01-caisson-unmanaged.conf": "Match User cem\n",
	})
	// lives is the root with its changes since it was stacked.
	lives = stacked.with(tree{
		"etc/passwd": stacked["etc/passwd"] + "systemd-oom:x:990:990::/:/usr/sbin/nologin\n",
		"etc/group":  strings.Replace(stacked["etc/group"], "sudo:x:27:ann,bob", "sudo:x:27:ann,bob,local", 1) + "systemd-oom:x:990:\n",
		"etc/shadow": strings.Replace(stacked["etc/shadow"], "bob:$6$b:20000:0:99999", "bob:$6$b:20000:0:30", 1) + "systemd-oom:!*:20300::::::\n",
	})
)

func difference(t *testing.T, from, to tree) Want {
	t.Helper()
	changes, err := Difference(from.write(t, t.TempDir()), to.write(t, t.TempDir()), nil)
	return Want{changes, err}
}

// Nothing tells of its changes: they come with a layer, and are looked at with it.
func TestConformance(t *testing.T) {
	require.Root(t)
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		root := lives.write(t, t.TempDir())
		want := difference(t, stacked, wanted)
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, root, nil, j) },
			Empty:    func(j item.Journal) item.Item { return New(Want{}, root, nil, j) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	})
}

// putInEffect makes a root as a layer wants it and fails where something is left to do.
func putInEffect(t *testing.T, root string, want Want, j item.Journal) {
	t.Helper()
	it := New(want, root, nil, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(j.Entries(Name), func(e item.Entry) bool {
		return !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key })
	})
	if err := it.Restore(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if drift, err := it.Check(t.Context()); err != nil || len(drift) > 0 {
		t.Fatalf("%+v, %v is left", drift, err)
	}
}

func has(t *testing.T, root, name string, lines ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		not, line := strings.HasPrefix(line, "!"), strings.TrimPrefix(line, "!")
		if slices.ContainsFunc(strings.Split(string(data), "\n"), func(l string) bool { return strings.HasPrefix(l, line) }) == not {
			t.Errorf("%s: line %q is there: %v, in\n%s", name, line, not, data)
		}
	}
}

func gone(t *testing.T, root, name string, is bool) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(root, name)); (err != nil) != is {
		t.Errorf("%s is gone: %v, %v", name, !is, err)
	}
}

// What programs of the node changed stays, whatever the layer changes.
func TestTheNodesOwnLinesStay(t *testing.T) {
	require.Root(t)
	root, j := lives.write(t, t.TempDir()), itemtest.Journal(t, t.TempDir())
	if err := unix.Lsetxattr(filepath.Join(root, "etc/shadow"), "user.of", []byte("node"), 0); err != nil {
		t.Fatal(err)
	}
	putInEffect(t, root, difference(t, stacked, wanted), j)
	has(t, root, "etc/passwd", "root:", "!ann:", "bob:x:1002:1002::/home/bob:/bin/zsh", "cem:", "systemd-oom:x:990")
	has(t, root, "etc/group", "adm:x:4:bob", "sudo:x:27:bob,local,cem", "!ann:", "cem:x:1003:", "systemd-oom:x:990")
	has(t, root, "etc/shadow", "!ann:", "bob:$6$new:20100:0:30:", "cem:$6$c", "systemd-oom:!*")
	has(t, root, "etc/gshadow", "adm:*::bob", "sudo:*::bob,cem")
	has(t, root, "etc/ssh/authorized_keys.d/bob", "ssh-ed25519 B2 ", "!ssh-ed25519 B bob")
	gone(t, root, "etc/ssh/authorized_keys.d/ann", true)
	gone(t, root, "etc/sudoers.d/caisson-ann", true)
	gone(t, root, "etc/sudoers.d/caisson-cem", false)
	gone(t, root, "home/ann/.profile", false) // what a user has is not deleted by a change of a layer
	gone(t, root, "home/cem/.config", false)
	value := make([]byte, 16)
	if n, err := unix.Lgetxattr(filepath.Join(root, "etc/shadow"), "user.of", value); err != nil || string(value[:n]) != "node" {
		t.Errorf("the attribute of a file is %q, %v", value[:max(n, 0)], err)
	}
	if info, err := os.Stat(filepath.Join(root, "etc/shadow")); err != nil || info.Mode() != 0o440 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	// What changes from then on is the node's, as with any other layer; and it stays when
	// the next layer comes, and when the way leads back.
	tree{"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nbob:x:1002:1002:Bob:/home/bob:/bin/zsh\ncem:x:1003:1003::/home/cem:/bin/bash\nsystemd-oom:x:990:990::/:/usr/sbin/nologin\nlate:x:991:991::/:/bin/sh\n",
		"home/cem/notes": "mine"}.write(t, root)
	if drift, err := New(difference(t, stacked, wanted), root, nil, j).Check(t.Context()); err != nil || len(drift) > 0 {
		t.Errorf("a change by the node is drift: %+v, %v", drift, err)
	}
	third := wanted.with(tree{"etc/passwd": strings.Replace(wanted["etc/passwd"], "zsh", "fish", 1), "etc/ssh/authorized_keys.d/cem": "-"})
	putInEffect(t, root, difference(t, stacked, third), j)
	has(t, root, "etc/passwd", "bob:x:1002:1002:Bob:/home/bob:/bin/fish", "late:")
	gone(t, root, "etc/ssh/authorized_keys.d/cem", true)
	putInEffect(t, root, Want{}, j)
	has(t, root, "etc/passwd", "ann:", "bob:x:1002:1002:Bob:/home/bob:/bin/bash", "!cem:", "late:", "systemd-oom:")
	has(t, root, "etc/group", "sudo:x:27:ann,bob,local", "adm:x:4:ann", "ann:x:1001:", "!cem:")
	has(t, root, "etc/ssh/authorized_keys.d/ann", "ssh-ed25519 A ann")
	gone(t, root, "etc/ssh/authorized_keys.d/cem", true)
	gone(t, root, "home/cem/notes", false) // its user has used it
	if left := j.Entries(Name); len(left) > 0 {
		t.Errorf("%d entries are left", len(left))
	}
}

// daemon is a systemd that notes what it is asked to do.
type daemon struct {
	state string
	did   []string
}

func (d *daemon) State(context.Context, string) (string, time.Time, error) {
	return d.state, time.Time{}, nil
}
func (d *daemon) Do(_ context.Context, job, unit string) error {
	d.did = append(d.did, job+" "+unit)
	return nil
}

// Which users sshd lets have keys of their own it reads when it starts.
func TestSshdIsTold(t *testing.T) {
	require.Root(t)
	for state, want := range map[string][]string{"active": {"reload ssh.service", "reload ssh.service"}, "inactive": nil} {
		root, j, d := stacked.write(t, t.TempDir()), itemtest.Journal(t, t.TempDir()), &daemon{state: state}
		keys := stacked.with(tree{"etc/ssh/authorized_keys.d/bob": "ssh-ed25519 B2 bob\n"})
		for _, to := range []tree{keys, wanted, keys} { // the keys themselves it reads at each login
			it := New(difference(t, stacked, to), root, d, j)
			drift, err := it.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			left := slices.DeleteFunc(j.Entries(Name), func(e item.Entry) bool {
				return !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key })
			})
			if err := errors.Join(it.Restore(t.Context(), left), it.Apply(t.Context(), drift)); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(d.did, want) {
			t.Errorf("%s: %q, want %q", state, d.did, want)
		}
	}
}

// What cannot be done whole is refused before anything of it is done.
func TestRefused(t *testing.T) {
	require.Root(t)
	for what, c := range map[string]struct {
		lives tree
		want  string
	}{
		"a user of the node":       {lives.with(tree{"etc/passwd": lives["etc/passwd"] + "cem:x:4000:4000::/:/bin/sh\n"}), "a row of its own"},
		"a number of the node":     {lives.with(tree{"etc/passwd": lives["etc/passwd"] + "dee:x:1003:1003::/:/bin/sh\n"}), "dee of this node has the number 1003"},
		"a group's number":         {lives.with(tree{"etc/group": lives["etc/group"] + "dee:x:1003:\n"}), "dee of this node has the number 1003"},
		"two rows":                 {lives.with(tree{"etc/shadow": lives["etc/shadow"] + "bob:x:1::::::\n"}), "two rows of bob"},
		"another form":             {lives.with(tree{"etc/passwd": strings.Replace(lives["etc/passwd"], "bob:x", "bob:x:x", 1)}), "8 fields on this node"},
		"a directory in its place": {lives.with(tree{"etc/sudoers.d/caisson-cem/": ""}), "it is a directory"},
		"no database":              {lives.with(tree{"etc/subuid": "-"}), "/etc/subuid is not there"},
	} {
		root, j := c.lives.write(t, t.TempDir()), itemtest.Journal(t, t.TempDir())
		before := snapshot(t, root)
		it := New(difference(t, stacked, wanted), root, nil, j)
		drift, err := it.Check(t.Context())
		if err != nil || !slices.ContainsFunc(drift, func(d spec.Drift) bool {
			return d.Action == spec.ActionRefuse && strings.Contains(d.Reason, c.want)
		}) {
			t.Errorf("%s: %+v, %v", what, drift, err)
		}
		for i := range drift {
			drift[i].Action = spec.ActionChange
		}
		if err := it.Apply(t.Context(), drift); err == nil || snapshot(t, root) != before || len(j.Entries(Name)) > 0 {
			t.Errorf("%s: %v, and something was changed", what, err)
		}
	}
}

// What an image of accounts has that no running root can take is said.
func TestDifferenceThatIsNotLive(t *testing.T) {
	link := stacked.write(t, t.TempDir())
	if err := os.Symlink("bob", filepath.Join(link, "etc/ssh/authorized_keys.d/cem")); err != nil {
		t.Fatal(err)
	}
	mode := stacked.write(t, t.TempDir())
	if err := os.Chmod(filepath.Join(mode, "home/bob"), 0o700); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		to, below, want string
	}{
		"a link":        {link, t.TempDir(), "neither a file nor a directory"},
		"a home's mode": {mode, t.TempDir(), "/home/bob changes its kind, owner or mode"},
		"two rows":      {stacked.with(tree{"etc/passwd": "bob:x\nbob:y\n"}).write(t, t.TempDir()), t.TempDir(), "two rows of bob"},
		"below":         {wanted.write(t, t.TempDir()), stacked.write(t, t.TempDir()), "an image below has it"},
		"large":         {stacked.with(tree{"etc/x": strings.Repeat("x", maxFile+1)}).write(t, t.TempDir()), t.TempDir(), "more than"},
	} {
		if _, err := Difference(stacked.write(t, t.TempDir()), c.to, []string{c.below}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if d, err := Difference(stacked.write(t, t.TempDir()), stacked.write(t, t.TempDir()), nil); err != nil || len(d) > 0 {
		t.Errorf("the same: %+v, %v", d, err)
	}
}

// A password's hash is nobody's business who reads a status or a log.
func TestNoHashIsShown(t *testing.T) {
	require.Root(t)
	root := lives.write(t, t.TempDir())
	drift, err := New(difference(t, stacked, wanted), root, nil, itemtest.Journal(t, t.TempDir())).Check(t.Context())
	if err != nil || len(drift) == 0 {
		t.Fatalf("%+v, %v", drift, err)
	}
	if text := fmt.Sprintf("%+v", drift); strings.Contains(text, "$6$") || !strings.Contains(text, "/etc/shadow:cem") {
		t.Errorf("%s", text)
	}
}
