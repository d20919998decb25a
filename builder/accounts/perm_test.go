// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/roottest"
)

func TestPerm(t *testing.T) {
	base := roottest.New(t, map[string]string{"usr/bin/true": "#!/bin/sh\n"})
	lower := t.TempDir()
	for name, mode := range map[string]os.FileMode{"srv/a.conf": 0o644, "srv/b.conf": 0o644, "srv/.c.conf": 0o644, "srv/suid": 0o755 | os.ModeSetuid, "srv/caps": 0o755} {
		at := filepath.Join(lower, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.conf", filepath.Join(lower, "srv/link")); err != nil {
		t.Fatal(err)
	}
	capNetRaw := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // vfs_cap_data: cap_net_raw+ep
	if err := unix.Lsetxattr(filepath.Join(lower, "srv/caps"), "security.capability", capNetRaw, 0); err != nil {
		t.Fatal(err)
	}
	paths := func(p ...spec.PermPath) spec.Perm { return spec.Perm{Paths: p} }
	tests := []struct {
		name string
		p    spec.Perm
		path string
		mode os.FileMode
		uid  uint32
		gid  uint32
		want string
	}{
		{"octal", paths(spec.PermPath{Path: "/srv/a.conf", Mode: "0600"}), "/srv/a.conf", 0o600, 0, 0, ""},
		{"symbolic", paths(spec.PermPath{Path: "/srv/a.conf", Mode: "u=rw,go="}), "/srv/a.conf", 0o600, 0, 0, ""},
		{"setuid with an owner", paths(spec.PermPath{Path: "/srv/a.conf", Owner: "daemon", Mode: "4755"}), "/srv/a.conf", 0o755 | os.ModeSetuid, 1, 0, ""},
		{"setuid stays when only the owner changes", paths(spec.PermPath{Path: "/srv/suid", Owner: "daemon", Group: "adm"}), "/srv/suid", 0o755 | os.ModeSetuid, 1, 4, ""},
		{"a number without a name", paths(spec.PermPath{Path: "/srv/a.conf", Owner: "4242", Group: "4243"}), "/srv/a.conf", 0o644, 4242, 4243, ""},
		{"pattern", paths(spec.PermPath{Path: "/srv/*.conf", Mode: "0640"}), "/srv/b.conf", 0o640, 0, 0, ""},
		{"a pattern leaves dot files", paths(spec.PermPath{Path: "/srv/*.conf", Mode: "0640"}), "/srv/.c.conf", 0o644, 0, 0, ""},
		{"the last one wins", paths(spec.PermPath{Path: "/srv/a.conf", Mode: "0600"}, spec.PermPath{Path: "/srv/*", Mode: "0604"}), "", 0, 0, 0, "symbolic link"},
		{"a folder", paths(spec.PermPath{Path: "/srv", Mode: "2750", Group: "adm"}), "/srv", 0o750 | os.ModeSetgid | os.ModeDir, 0, 4, ""},
		{"below a link", paths(spec.PermPath{Path: "/bin/true", Mode: "0700"}), "/usr/bin/true", 0o700, 0, 0, ""},
		{"a link", paths(spec.PermPath{Path: "/srv/link", Mode: "0600"}), "", 0, 0, 0, "symbolic link"},
		{"missing", paths(spec.PermPath{Path: "/srv/none", Mode: "0600"}), "", 0, 0, 0, "no such path"},
		{"missing is fine", spec.Perm{IgnoreMissing: true, Paths: []spec.PermPath{{Path: "/srv/none", Mode: "0600"}, {Path: "/srv/a.conf", Mode: "0600"}}}, "/srv/a.conf", 0o600, 0, 0, ""},
		{"unknown owner", paths(spec.PermPath{Path: "/srv/a.conf", Owner: "nobody-knows"}), "", 0, 0, 0, "nobody-knows"},
		{"an option", paths(spec.PermPath{Path: "/srv/a.conf", Owner: "--from=x"}), "", 0, 0, 0, "neither a name nor an id"},
		{"a bad mode", paths(spec.PermPath{Path: "/srv/a.conf", Mode: "rw-r--r--"}), "", 0, 0, 0, "not a mode"},
		{"dots", paths(spec.PermPath{Path: "/srv/../etc/shadow", Mode: "0644"}), "", 0, 0, 0, "not an absolute, clean path"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &root.Root{Lowers: append([]string{lower}, base.Lowers...), Upper: t.TempDir(), Work: t.TempDir()}
			err := BakePerm(t.Context(), r, test.p)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want an error with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := r.Lstat(test.path)
			if err != nil {
				t.Fatal(err)
			}
			st := info.Sys().(*syscall.Stat_t)
			if info.Mode() != test.mode || st.Uid != test.uid || st.Gid != test.gid {
				t.Errorf("%s is %v %d:%d, want %v %d:%d", test.path, info.Mode(), st.Uid, st.Gid, test.mode, test.uid, test.gid)
			}
		})
	}
	t.Run("capabilities stay", func(t *testing.T) {
		r := &root.Root{Lowers: append([]string{lower}, base.Lowers...), Upper: t.TempDir(), Work: t.TempDir()}
		if err := BakePerm(t.Context(), r, paths(spec.PermPath{Path: "/srv/caps", Group: "adm"})); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 64)
		n, err := unix.Lgetxattr(filepath.Join(r.Upper, "srv/caps"), "security.capability", got)
		if err != nil || !bytes.Equal(got[:n], capNetRaw) {
			t.Errorf("capabilities are % x, %v", got[:max(n, 0)], err)
		}
	})
}
