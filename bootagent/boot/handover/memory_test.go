// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/test/itemtest"
)

// The service of a node without a disk may bring images into memory that are larger than
// what it needs for itself; with a disk its limits stay.
func TestMemory(t *testing.T) {
	const dropIn = "etc/systemd/system/caisson-agent.service.d/60-caisson-memory.conf"
	withDisk := newNode(t, t.TempDir(), true)
	do(t, withDisk)
	if _, err := os.Lstat(withDisk.path(dropIn)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with a disk: %v", err)
	}
	if !itemtest.InSystemd(t) {
		return
	}
	n := newNode(t, t.TempDir(), false)
	text := do(t, n)(dropIn)
	unit, err := systemd.Units.ReadFile("caisson-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"caisson-agent.service": string(unit), "caisson-agent.service.d/memory.conf": text} {
		name = filepath.Join("/run/units", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := systemctl("show", "-P", "MemoryHigh", "-P", "MemoryMax", "caisson-agent.service")
	if err != nil || strings.Contains(out, "134217728") || strings.Contains(out, "268435456") || !strings.Contains(out, "infinity") {
		t.Errorf("its limits are %q, %v", out, err)
	}
}
