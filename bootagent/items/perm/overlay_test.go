// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// A node's root is an overlay: the first change copies a file up, and it may have
// another inode from then on. It is the same file all the same.
func TestConformanceOnOverlay(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		base := t.TempDir()
		for _, dir := range []string{"lower", "upper", "root"} {
			if err := os.Mkdir(base+"/"+dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		mount := func(target, fstype, options string) {
			if err := unix.Mount(fstype, target, fstype, 0, options); err != nil {
				require.Missing(t, "overlay", fmt.Sprintf("mount %s: %v", fstype, err))
			}
			t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
		}
		mount(base+"/lower", "tmpfs", "")
		files(t, base+"/lower", map[string]uint32{"a": 0o644, "tool": 0o4755})
		mount(base+"/upper", "tmpfs", "")
		for _, dir := range []string{"up", "work"} {
			if err := os.Mkdir(base+"/upper/"+dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		root := base + "/root"
		mount(root, "overlay", "lowerdir="+base+"/lower,upperdir="+base+"/upper/up,workdir="+base+"/upper/work")
		want := &spec.Perm{Paths: []spec.PermPath{{Path: root + "/a", Mode: "0600"}, {Path: root + "/tool", Mode: "4711"}, {Path: root, Mode: "0700"}}}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, "", j, t.Logf) },
			Empty:    func(j item.Journal) item.Item { return New(nil, "", j, t.Logf) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	})
}
