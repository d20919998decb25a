// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"os"
	"os/exec"
	"testing"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// images makes the two images of the rows in dir.
func images(t *testing.T, dir string) []Image {
	t.Helper()
	require.Tool(t, "mksquashfs")
	build := `umask 022; mkdir base top
cp /usr/bin/id base/tool; cp /usr/bin/id base/open; chmod 4755 base/tool base/open; echo secret >base/secret
cp /usr/bin/id top/tool; echo secret >top/secret; chmod 600 top/secret
mksquashfs base base.squashfs -quiet -no-progress; mksquashfs top top.squashfs -quiet -no-progress; mkdir root`
	cmd := exec.Command("/bin/sh", "-ec", build)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []Image{{Path: dir + "/base.squashfs", Type: squashfs}, {Path: dir + "/top.squashfs", Type: squashfs}}
}

// stacked plays a row and reports whether the user gained something.
func stacked(t *testing.T, row attack.LocalUser) bool {
	t.Helper()
	dir := row.Stage(t)
	s := Stack{Images: images(t, dir), Mounts: dir + "/images", Upper: dir + "/upper", Target: dir + "/root"}
	if err := s.Mount(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	if row.After != "" { // root opens the directories, by mistake
		if err := os.Chmod(s.Mounts, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return row.Gained(dir)
}

func TestLocalUsers(t *testing.T) {
	rows := map[string]int{}
	for _, row := range attack.LocalUsers(t, "layers") {
		rows[row.Check]++
		t.Run(row.Name, func(t *testing.T) {
			if gained := stacked(t, row); gained != (row.Check == "") {
				t.Errorf("the user gained: %v", gained)
			}
			defer func(mode os.FileMode, flags uintptr) { partMode, partFlags = mode, flags }(partMode, partFlags)
			switch row.Check {
			case "mode":
				partMode = 0o755
			case "flags":
				partFlags = 0
			default:
				return
			}
			if !stacked(t, row) {
				t.Errorf("without the check %q the attack still fails", row.Check)
			}
		})
	}
	if rows["mode"] == 0 || rows["flags"] == 0 {
		t.Errorf("rows %v: one check is not attacked", rows)
	}
}
