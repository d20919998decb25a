// SPDX-License-Identifier: Apache-2.0

package cpio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestArchive lets the real cpio unpack one.
func TestArchive(t *testing.T) {
	require.Tool(t, "cpio")
	dir := t.TempDir()
	cmd := exec.Command("cpio", "-id", "--quiet")
	cmd.Dir = dir
	a := New()
	a.File("/etc/caisson/site.json", []byte("whom to believe"), 0o600)
	cmd.Stdin = bytes.NewReader(a.Bytes())
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, text)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "etc/caisson/site.json")); err != nil || string(got) != "whom to believe" {
		t.Errorf("%q, %v", got, err)
	}
	for n, want := range map[int64]int{0: 0, 1: 3, 3: 1, 4: 0, 8: 0} {
		if got := Pad(n, 4); len(got) != want {
			t.Errorf("%d bytes are padded by %d, want %d", n, len(got), want)
		}
	}
}
