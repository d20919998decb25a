// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/test/require"
)

// However many file systems are made and repaired, none of them keeps the loader from
// making progress for so long that it starts the machine over.
func TestProgramsAreProgress(t *testing.T) {
	require.Tool(t, "mke2fs", "e2fsck")
	if disk.E2fsLimit >= usual.hang {
		t.Errorf("a program may take %v, and the loader is ended after %v", disk.E2fsLimit, usual.hang)
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	made := 0
	p := watched{disk.E2fsPrograms{}, func() { made++ }}
	if err := p.Make(image, "x", 0, 8<<20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.Preen(image, true); err != nil {
			t.Fatal(err)
		}
	}
	if made != 3 {
		t.Errorf("3 programs ran, and %d times progress was noted", made)
	}
}
