// SPDX-License-Identifier: Apache-2.0

// Package tokentest makes tokens that never give their keys away, by softhsm2. Only tests
// import it.
package tokentest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// New makes a token with an ECDSA P-256 key of each label, and returns the environment by
// which examples/signer/pkcs11 reaches it. Its PIN is 1234.
func New(t testing.TB, labels ...string) map[string]string {
	t.Helper()
	require.Tool(t, "softhsm2-util", "pkcs11-tool", "openssl", "basenc")
	modules, err := filepath.Glob("/usr/lib/*/softhsm/libsofthsm2.so")
	if err != nil || len(modules) == 0 {
		t.Fatalf("softhsm2 has no library: %v", err)
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "softhsm2.conf")
	if err := os.WriteFile(conf, []byte("directories.tokendir = "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "SOFTHSM2_CONF="+conf)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("softhsm2-util", "--init-token", "--free", "--label", "fleet", "--so-pin", "0000", "--pin", "1234")
	for i, label := range labels {
		run("pkcs11-tool", "--module", modules[0], "--login", "--pin", "1234", "--keypairgen", "--key-type", "EC:prime256v1", "--label", label, "--id", fmt.Sprintf("%02x", i+1))
	}
	return map[string]string{"SOFTHSM2_CONF": conf, "CAISSON_TOKEN_MODULE": modules[0], "CAISSON_TOKEN_PIN": "1234"}
}
