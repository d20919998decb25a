// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// TestArchive lets the real cpio unpack what the next loader will be given.
func TestArchive(t *testing.T) {
	require.Tool(t, "cpio")
	dir := t.TempDir()
	cmd := exec.Command("cpio", "-id", "--quiet")
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(Archive("/etc/caisson/site.json", []byte("whom to believe")))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, text)
	}
	got, err := os.ReadFile(filepath.Join(dir, "etc/caisson/site.json"))
	if err != nil || string(got) != "whom to believe" {
		t.Errorf("%q, %v", got, err)
	}
}
