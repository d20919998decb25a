// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/test/require"
)

// The programs run in a root that has nothing but what was packed: those of this machine,
// as if it were a layer.
func TestProgramsRunAlone(t *testing.T) {
	require.Root(t) // chroot
	for _, name := range paths.DiskPrograms {
		require.Tool(t, filepath.Base(name))
	}
	a, report := cpio.New(), Report{}
	i := Initrd{Root: &root.Root{Lowers: []string{"/"}}}
	if err := i.packPrograms(a, &report); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range unpacked(t, a.Bytes()) {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "disk"), make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{paths.Mke2fs, "-q", "-F", "-t", "ext4", "/disk"}, {paths.E2fsck, "-f", "-p", "/disk"}} {
		cmd := exec.Command("chroot", append([]string{dir}, words...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", words, err, out)
		}
	}
	t.Logf("%.1f MB", float64(report.ProgramBytes)/1e6)
}

func TestALayerWithoutThePrograms(t *testing.T) {
	i := Initrd{Root: &root.Root{Lowers: []string{t.TempDir()}}}
	if err := i.packPrograms(cpio.New(), &Report{}); err == nil || !strings.Contains(err.Error(), "add e2fsprogs to conf.apt.packages") {
		t.Error(err)
	}
}

// TestAShellInTheLoader: one that needs nothing else is packed, and no other.
func TestAShellInTheLoader(t *testing.T) {
	require.Root(t) // chroot
	require.Tool(t, "busybox", "bash")
	for _, program := range []string{"busybox", "bash", ""} {
		dir, a, report := t.TempDir(), cpio.New(), Report{}
		if program != "" {
			at, err := exec.LookPath(program)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(at)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(dir+paths.Busybox), 0o755)
			}
			if err == nil {
				err = os.WriteFile(dir+paths.Busybox, data, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		i := Initrd{Root: &root.Root{Lowers: []string{dir}}}
		if err := i.packShell(a, &report); err != nil {
			t.Fatal(err)
		}
		alone := exec.Command("chroot", dir, paths.Busybox, "--help").Run() == nil
		if packed := report.ProgramBytes > 0; packed != alone {
			t.Errorf("%q: packed %t, and it runs alone: %t", program, packed, alone)
		}
	}
}
