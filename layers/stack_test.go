// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

const squashfs = "application/vnd.caisson.image.v1.squashfs"

// TestStack mounts two real images and looks through the stack.
func TestStack(t *testing.T) {
	require.Root(t)
	require.Tool(t, "mksquashfs")
	dir := t.TempDir()
	image := func(name string, files map[string]string) Image {
		tree := filepath.Join(dir, name)
		for file, text := range files {
			path := filepath.Join(tree, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out := filepath.Join(dir, name+".squashfs")
		if text, err := exec.Command("mksquashfs", tree, out, "-quiet", "-no-progress").CombinedOutput(); err != nil {
			t.Fatalf("mksquashfs: %v\n%s", err, text)
		}
		return Image{Path: out, Type: squashfs}
	}
	s := Stack{
		Images: []Image{
			image("base", map[string]string{"etc/a": "base", "etc/b": "base"}),
			image("top", map[string]string{"etc/b": "top"}),
		},
		Mounts: filepath.Join(dir, "images"),
		Upper:  filepath.Join(dir, "upper"),
		Target: filepath.Join(dir, "root"),
	}
	if err := os.Mkdir(s.Target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Mount(); err != nil {
		t.Fatal(err)
	}
	read := func(file string) string {
		data, err := os.ReadFile(filepath.Join(s.Target, file))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	if got := read("etc/a") + " " + read("etc/b"); got != "base top" {
		t.Errorf("the stack shows %q, want %q", got, "base top")
	}
	if err := os.WriteFile(filepath.Join(s.Target, "etc/a"), []byte("written"), 0o644); err != nil {
		t.Error(err)
	}
	if err := s.Unmount(); err != nil {
		t.Fatal(err)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), dir) {
		t.Error("mounts are left")
	}

	odd := s
	odd.Images = []Image{{Path: s.Images[0].Path, Type: "application/vnd.example.tape"}}
	if err := odd.Mount(); err == nil || !strings.Contains(err.Error(), "vnd.example.tape") {
		t.Errorf("an image of an unknown type: %v", err)
	}

	broken := filepath.Join(dir, "broken.squashfs")
	if err := os.WriteFile(broken, make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Images = append(s.Images, Image{Path: broken, Type: squashfs})
	if err := s.Mount(); err == nil {
		t.Error("an image of zeros was mounted")
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), dir) {
		t.Error("mounts are left after a failure")
	}
}

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
