// SPDX-License-Identifier: Apache-2.0

package initramfs

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
	s := setting{file: file, value: "on"}
	if s.change() == nil {
		t.Error("changed a setting that is not there")
	}
	if err := os.WriteFile(file, []byte("ratelimit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.change(); err != nil || read() != "on\n" {
		t.Errorf("changed to %q: %v", read(), err)
	}
	if err := s.restore(); err != nil || read() != "ratelimit\n" {
		t.Errorf("restored to %q: %v", read(), err)
	}

	same := setting{file: file, value: "ratelimit"}
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := same.change(); err != nil || same.was != nil {
		t.Errorf("a setting that has the value already: was %q, %v", same.was, err)
	}
}
