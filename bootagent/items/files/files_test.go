// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

func snapshot(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&out, "%s %v %d:%d", strings.TrimPrefix(path, root), info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", data)
		case info.Mode()&fs.ModeSymlink != 0:
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
		t.Fatal(err)
	}
	return out.String()
}

// etc makes an /etc with users, a file, a set-uid file and a link.
func etc(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/root:/bin/sh\nchrony:x:104:112::/var/lib/chrony:/usr/sbin/nologin\n",
		"group":  "root:x:0:\nadm:x:4:\n", "chrony.conf": "pool old\n", "odd": "#!/bin/sh\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Chmod(filepath.Join(dir, "odd"), os.ModeSetuid|0o755),
		os.Symlink("../usr/share/zoneinfo/UTC", filepath.Join(dir, "localtime")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var want = []spec.File{
	{Path: "/etc/a/b/two.conf", Content: "2\n"},
	{Path: "/etc/a/one.conf", Content: "1\n", Mode: "0600"},
	{Path: "/etc/chrony.conf", Content: "pool new\n", Mode: "0640", Owner: "chrony", Group: "adm"},
	{Path: "/etc/localtime", Content: "a file now\n"},
	{Path: "/etc/odd", Content: "", Mode: "0755", Owner: "7", Group: "7"},
}

func TestConformance(t *testing.T) {
	require.Root(t)
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		dir := etc(t)
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, dir, j) },
			Empty:    func(j item.Journal) item.Item { return New(nil, dir, j) },
			Snapshot: func() string { return snapshot(t, dir) },
		}
	})
}

// apply makes an /etc as the files want it.
func apply(t *testing.T, want []spec.File, dir string, j item.Journal) error {
	t.Helper()
	it := New(want, dir, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return it.Apply(t.Context(), drift)
}

func TestContentOwnerAndMode(t *testing.T) {
	require.Root(t)
	dir := etc(t)
	if err := apply(t, want, dir, itemtest.Journal(t, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	got := snapshot(t, dir)
	for _, line := range []string{
		`/a drwxr-xr-x 0:0`, `/a/b/two.conf -rw-r--r-- 0:0 "2\n"`, `/a/one.conf -rw------- 0:0 "1\n"`, `/chrony.conf -rw-r----- 104:4 "pool new\n"`,
		`/localtime -rw-r--r-- 0:0 "a file now\n"`, `/odd -rwxr-xr-x 7:7 ""`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

// TestDirectoriesLeaveWithTheLastFile whichever file that is.
func TestDirectoriesLeaveWithTheLastFile(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	j := itemtest.Journal(t, t.TempDir())
	both := []spec.File{{Path: "/etc/a/b/1"}, {Path: "/etc/a/b/2"}}
	for _, stays := range both {
		if err := apply(t, both, dir, j); err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
		for _, now := range [][]spec.File{{stays}, nil} {
			it := New(now, dir, j)
			drift, err := it.Check(t.Context())
			if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRemove {
				t.Fatalf("check: %+v, %v", drift, err)
			}
			entries := j.Entries(Name)
			for _, e := range entries {
				if e.Key == drift[0].Key {
					if err := it.Restore(t.Context(), []item.Entry{e}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s was the last: %v is left, %v", stays.Path, left, err)
		}
	}
}

// TestLinksOnTheWayAreRefused: the owner of a directory below /etc does not lead
// a write elsewhere.
func TestLinksOnTheWayAreRefused(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "service")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "inside")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/etc/service/x.conf", "/etc/inside/x.conf", "/etc/service/deeper/x.conf"} {
		it := New([]spec.File{{Path: path, Content: "x"}}, dir, itemtest.Journal(t, t.TempDir()))
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, "symbolic link") {
			t.Errorf("%s: %+v, %v", path, drift, err)
		}
		if err := it.write(new(safepath.Batch), path, state{Kind: regular, Content: "x", Mode: 0o644}); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	for _, d := range []string{elsewhere, filepath.Join(dir, "real")} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", d, left, err)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := etc(t)
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "directory"), 0o755),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(filepath.Join(dir, "large"), make([]byte, maxOriginal+1), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		file spec.File
		want string
	}{
		"outside":          {spec.File{Path: "/usr/x"}, "below /etc"},
		"climbing":         {spec.File{Path: "/etc/../x"}, "below /etc"},
		"etc itself":       {spec.File{Path: "/etc/"}, "below /etc"},
		"set-uid":          {spec.File{Path: "/etc/x", Mode: "4755"}, "more than permissions"},
		"not a mode":       {spec.File{Path: "/etc/x", Mode: "rw"}, "not a mode"},
		"unknown user":     {spec.File{Path: "/etc/x", Owner: "nobody-here"}, `passwd has no "nobody-here"`},
		"a directory":      {spec.File{Path: "/etc/directory"}, "not a file"},
		"a pipe":           {spec.File{Path: "/etc/pipe"}, "not a file"},
		"a large original": {spec.File{Path: "/etc/large"}, "more than"},
		"below a file":     {spec.File{Path: "/etc/odd/x"}, "not a directory"},
	} {
		it := New([]spec.File{c.file}, dir, itemtest.Journal(t, t.TempDir()))
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, c.want) {
			t.Errorf("%s: %+v, %v; want %q", what, drift, err, c.want)
		}
	}
}

// TestForeignFilesStay: only what a killed writer of ours left is swept.
func TestForeignFilesStay(t *testing.T) {
	dir := etc(t)
	for _, name := range []string{".motd.bak", ".motd.12345", ".motdx.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(t, []spec.File{{Path: "/etc/motd"}}, dir, itemtest.Journal(t, t.TempDir())); err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	got := snapshot(t, dir)
	for name, stays := range map[string]bool{".motd.bak": true, ".motdx.1": true, ".motd.12345": false} {
		if strings.Contains(got, "/"+name+" ") != stays {
			t.Errorf("%s stays: %v, want %v", name, !stays, stays)
		}
	}
}

// The agent's unit has a umask that would close them.
func TestDirectoriesAreForEverybody(t *testing.T) {
	require.Root(t)
	dir := etc(t)
	defer syscall.Umask(syscall.Umask(0o077))
	it := New([]spec.File{{Path: "/etc/new/deep/f", Content: "x", Mode: "0644"}}, dir, itemtest.Journal(t, t.TempDir()))
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "new/deep"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// What its reader does not take is not written, and what stands there stays.
func TestKeepsWhatItsReaderTakes(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "etc/sudoers.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "etc/sudoers.d/ops")
	if err := os.WriteFile(at, []byte("good"), 0o644); err != nil {
		t.Fatal(err)
	}
	j := itemtest.Journal(t, t.TempDir())
	want := []spec.File{{Path: "/etc/sudoers.d/ops", Content: "bad", Owner: strconv.Itoa(os.Getuid()), Group: strconv.Itoa(os.Getgid())}}
	it := New(want, filepath.Join(dir, "etc"), j).WithReaders(func(_ context.Context, path, content string) error {
		if path != "/etc/sudoers.d/ops" || content != "bad" {
			t.Errorf("asked about %s, %q", path, content)
		}
		return errors.New("visudo does not take it: line 1")
	})
	for range 2 {
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || drift[0].Reason != "visudo does not take it: line 1" {
			t.Fatalf("%+v, %v", drift, err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(at); err != nil || string(text) != "good" {
		t.Errorf("%q, %v", text, err)
	}
	want[0].Content, want[0].Secret = "", "rules"
	secrets := Secrets{Dir: "/secrets", Lacks: func(string) string { return "" }, Ask: func(_ context.Context, path, secret string) error {
		return fmt.Errorf("%s is not taken as %s", secret, path)
	}}
	drift, err := New(want, filepath.Join(dir, "etc"), j).WithSecrets(secrets).Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || drift[0].Reason != "rules is not taken as /etc/sudoers.d/ops" {
		t.Errorf("a secret: %+v, %v", drift, err)
	}
}
