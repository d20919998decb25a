// SPDX-License-Identifier: Apache-2.0

package strict

import (
	"os"
	"strings"
	"testing"
)

// TestRead announces too little, too much and nothing: what is read depends on the
// limit alone.
func TestRead(t *testing.T) {
	for _, announced := range []int64{-1, 0, 5, 1 << 60} {
		for text, want := range map[string]string{"": "", "12345": "12345", "123456789": "123456"} {
			if got, err := ReadCapped(strings.NewReader(text), announced, 5); err != nil || string(got) != want {
				t.Errorf("Read(%q, announced %d, limit 5) = %q, %v; want %q", text, announced, got, err, want)
			}
		}
	}
}

func TestReadFile(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile("four", []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFileCapped(root, "four", 4); string(data) != "four" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := ReadFileCapped(root, "four", 3); err == nil || err.Error() != "four has more than 3 bytes" {
		t.Errorf("%v", err)
	}
}
