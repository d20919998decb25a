// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSetting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "printk_devkmsg")
	read := func() string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	s := Setting{File: file, Value: "on"}
	if s.change() == nil {
		t.Error("changed a setting that is not there")
	}
	if err := os.WriteFile(file, []byte("ratelimit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.change(); err != nil || read() != "on\n" {
		t.Errorf("changed to %q: %v", read(), err)
	}
	if err := s.Restore(); err != nil || read() != "ratelimit\n" {
		t.Errorf("restored to %q: %v", read(), err)
	}

	same := Setting{File: file, Value: "ratelimit"}
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := same.change(); err != nil || same.was != nil {
		t.Errorf("a setting that has the value already: was %q, %v", same.was, err)
	}
}

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
		if err := ArmPanic(proc); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(panics); err != nil || string(got) != want {
			t.Errorf("started with %q: kernel.panic %q, %v; want %s", line, got, err, want)
		}
	}
}
