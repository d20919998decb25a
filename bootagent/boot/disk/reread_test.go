// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk/gpt"
)

// TestRereadWhileLookedAt: on a running system udev opens each partition of a disk that was
// written to. The table is read once it has closed them.
func TestRereadWhileLookedAt(t *testing.T) {
	device, _ := loop(t, 8<<20, "", "--partscan")
	d, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // only read
	if err := announce(d, gpt.Layout{Start: 2 * gpt.Mebibyte}); err != nil {
		t.Fatal(err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(read(fmt.Sprintf("/sys/class/block/%sp%d/dev", filepath.Base(device), gpt.BootNumber)), "%d:%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(t.TempDir(), "part")
	if err := unix.Mknod(part, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatal(err)
	}
	looking, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, func() { looking.Close() }) // only read
	if err := (kernel{}).Reread(device); err != nil {
		t.Error(err)
	}
}
