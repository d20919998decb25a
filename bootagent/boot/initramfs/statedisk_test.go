// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindState(t *testing.T) {
	sys := t.TempDir()
	add := func(name, text string) {
		t.Helper()
		dir := filepath.Join(sys, "class/block", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	add("vda", "DEVNAME=vda\nDEVTYPE=disk\n")
	if device, err := findState(sys); device != "" || err != nil {
		t.Fatalf("without a partition: %q, %v", device, err)
	}
	add("vda1", "DEVNAME=vda1\nDEVTYPE=partition\nPARTN=1\nPARTNAME=caisson-state\n")
	if device, err := findState(sys); device != "/dev/vda1" || err != nil {
		t.Fatalf("with one: %q, %v", device, err)
	}
	add("vdb1", "DEVNAME=vdb1\nPARTNAME=caisson-state\n")
	if device, err := findState(sys); err == nil {
		t.Fatalf("with two, %q was taken", device)
	}
}
