// SPDX-License-Identifier: Apache-2.0

package itemtest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// inside marks the process that runs in the namespaces.
const inside = "CAISSON_TEST_NAMESPACES"

// InNamespaces reports whether t runs in mount, network and IPC namespaces of
// its own. When it does not, it runs the same test again in a child that does,
// and t, which should return then, has the child's result. Such tests share
// nothing: they run in parallel. It needs root and the tools that the test names.
func InNamespaces(t *testing.T, tools ...string) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	require.Root(t)
	require.Tool(t, tools...)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + regexp.QuoteMeta(t.Name()) + "$", "-test.count=1", "-test.v"}
	child := exec.CommandContext(t.Context(), self, args...)
	child.Env = append(os.Environ(), inside+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC}
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("in namespaces: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP: ") {
		t.Skipf("in namespaces:\n%s", out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in namespaces the test did not run:\n%s", out)
	}
	return false
}
