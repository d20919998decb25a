// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A kernel that was started without panic= gets it for what is left of the boot,
// the new root's init included.
func TestArmPanic(t *testing.T) {
	for line, want := range map[string]string{"quiet\n": "30", "quiet panic=0\n": "0", "panic=300 quiet\n": "0"} {
		proc := t.TempDir()
		panics := filepath.Join(proc, "sys/kernel/panic")
		if err := os.MkdirAll(filepath.Dir(panics), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": line, "sys/kernel/panic": "0"} {
			if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b := &boot{console: console{&bytes.Buffer{}}}
		b.armPanic(proc)
		if got, err := os.ReadFile(panics); err != nil || string(got) != want {
			t.Errorf("started with %q: kernel.panic %q, %v; want %s", line, got, err, want)
		}
	}
}
