// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/test/require"
)

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}

// machineCode writes one that does nothing: a head, one segment, and instructions.
func machineCode(t *testing.T, machine uint16, code ...uint32) string {
	t.Helper()
	const base, size = 0x400000, 64 + 56
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, size-7)...)
	le.PutUint16(b[16:], 2) // an executable
	le.PutUint16(b[18:], machine)
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], base+size) // entry
	le.PutUint64(b[32:], 64)        // segments
	for at, n := range map[int]uint16{52: 64, 54: 56, 56: 1} {
		le.PutUint16(b[at:], n)
	}
	for _, word := range code {
		b = le.AppendUint32(b, word)
	}
	le.PutUint32(b[64:], 1)   // load,
	le.PutUint32(b[64+4:], 5) // read and run
	for at, n := range map[int]int{16: base, 24: base, 32: len(b), 40: len(b), 48: 0x1000} {
		le.PutUint64(b[64+at:], uint64(n))
	}
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestEmulates: a program of another machine runs in a root where the kernel has an emulator for it, and
// where not the error says what to install.
func TestEmulates(t *testing.T) {
	require.Root(t)
	work := t.TempDir()
	if err := os.Chmod(filepath.Dir(work), 0o755); err != nil {
		t.Fatal(err)
	}
	exit := machineCode(t, 0xb7, 0xd2800000, 0xd2800ba8, 0xd4000001) // mov x0, 0; mov x8, 93; svc 0
	if err := Emulates(t.Context(), work, "none", runtime.GOARCH); err != nil {
		t.Errorf("one of the host's own is not run: %v", err)
	}
	var hinted interface{ Hint() string }
	none := Emulates(t.Context(), work, machineCode(t, 0x7a57), "arm65") // of a machine that nobody has
	if none == nil || !strings.Contains(none.Error(), "a layer for arm65 on a host of "+runtime.GOARCH) || !strings.Contains(none.Error(), "exec format error") ||
		!errors.As(none, &hinted) || !strings.Contains(hinted.Hint(), "apt install qemu-user-static") {
		t.Errorf("of no machine: %v", none)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", work, left, err)
	}
	require.Runs(t, "arm64")
	if err := Emulates(t.Context(), work, exit, "arm64"); err != nil {
		t.Error(err)
	}
}
