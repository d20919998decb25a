// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAlgorithmIsKnownHereOnly: a new algorithm must not be a change of everything
// that passes keys on.
func TestAlgorithmIsKnownHereOnly(t *testing.T) {
	known := map[string]bool{}
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), "ecdsa.PublicKey") {
			known[filepath.ToSlash(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if name != "../../oci/sign/key.go" && name != "../../oci/sign/p256.go" {
			t.Errorf("%s names ecdsa.PublicKey: use sign.Verifier", strings.TrimPrefix(name, "../../"))
		}
	}
	if len(known) == 0 {
		t.Error("the test looks in the wrong place")
	}
}
