// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// cosign is one version of the real program, in a directory of its own that has
// keys, a signing config without services and an empty trusted root.
type cosign struct {
	t       *testing.T
	version string // "v2" or "v3"
	program string
	dir     string
}

// versions runs a test once for each version.
func versions(t *testing.T, test func(t *testing.T, c *cosign)) {
	for _, version := range []string{"v2", "v3"} {
		t.Run(version, func(t *testing.T) { test(t, newCosign(t, version)) })
	}
}

func newCosign(t *testing.T, version string) *cosign {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	c := &cosign{t, version, filepath.Join(cache, "caisson", "cosign", version, "cosign"), t.TempDir()}
	if _, err := os.Stat(c.program); err != nil {
		require.Missing(t, "cosign", c.program+" is not built: run test/interop/cosign.sh")
	}
	c.must("generate-key-pair")
	c.must("signing-config", "create", "--out", "services.json")
	c.must("trusted-root", "create", "--out", "root.json")
	return c
}

// run runs cosign offline.
func (c *cosign) run(args ...string) (string, error) {
	cmd := exec.Command(c.program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=secret", "HOME="+c.dir, "TUF_ROOT="+c.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *cosign) must(args ...string) {
	c.t.Helper()
	if out, err := c.run(args...); err != nil {
		c.t.Fatalf("cosign %s %s: %v\n%s", c.version, strings.Join(args, " "), err, out)
	}
}

// refuses wants cosign to fail, for a reason that says want.
func (c *cosign) refuses(want string, args ...string) {
	c.t.Helper()
	out, err := c.run(args...)
	if err == nil || !strings.Contains(out, want) {
		c.t.Errorf("cosign %s %s = %v, want a refusal with %q\n%s", c.version, strings.Join(args, " "), err, want, out)
	}
}

func (c *cosign) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cosign) file(name string, data []byte) string {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), data, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return name
}

func (c *cosign) read(name string) []byte {
	c.t.Helper()
	data, err := os.ReadFile(c.path(name))
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

// sign, verify and their kin with what "offline, with a key" takes in each version.

func (c *cosign) signArgs(verb, key string, args ...string) []string {
	out := []string{verb, "--yes", "--key", key, "--signing-config", "services.json"}
	if c.version == "v2" {
		out = append(out, "--new-bundle-format")
	}
	return append(out, args...)
}

func (c *cosign) verifyArgs(verb, key string, args ...string) []string {
	out := []string{verb, "--key", key, "--insecure-ignore-tlog"}
	if c.version == "v2" {
		out = append(out, "--new-bundle-format", "--trusted-root", "root.json")
	}
	return append(out, args...)
}
