// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// TestSettableTakesWhatKernelsSay: the value that this machine's kernel has for a parameter
// is one that it takes, so validate has to take it, too.
func TestSettableTakesWhatKernelsSay(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("/proc/sys", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // a directory of another user, or of a network that went
		}
		info, err := d.Info()
		if err != nil || info.Mode()&0o222 == 0 || info.Mode()&0o444 == 0 {
			return nil // gone meanwhile, or not a setting
		}
		value, err := os.ReadFile(name)
		text := strings.TrimRight(string(value), "\n\x00")
		if err != nil || text == "" || strings.Contains(text, "\n") {
			return nil // EIO and the like: some have no value until they are set
		}
		seen++
		s := spec.Sysctl{Key: strings.TrimPrefix(name, "/proc/sys/"), Value: text}
		if err := rules.Settable(s); err != nil {
			t.Errorf("%s = %q: %v", s.Key, s.Value, err)
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Fatalf("%d parameters: %v", seen, err)
	}
}
