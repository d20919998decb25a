// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCarryIPXE(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "ipxe.efi"), []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	carried, err := CarryIPXE(from, to)
	if err != nil || !slices.Equal(carried, []string{"ipxe.efi"}) {
		t.Fatalf("carried %q, %v", carried, err)
	}
	info, err := os.Stat(filepath.Join(to, "ipxe.efi"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("servers cannot read it: %v, %v", info, err)
	}
	if carried, err := CarryIPXE(filepath.Join(from, "none"), to); carried != nil || err != nil {
		t.Errorf("from nowhere: %q, %v", carried, err)
	}
	if _, err := CarryIPXE(from, filepath.Join(to, "none")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}
