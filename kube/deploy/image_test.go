// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestImage: the image has the program and nothing else, and runs it as nobody.
func TestImage(t *testing.T) {
	require.Root(t)
	require.Tool(t, "podman")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "caisson-kube"), []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	podman := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "podman", append([]string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("podman %s: %v\n%s", args[0], err, out)
		}
		return string(out)
	}
	context := filepath.Join(dir, "bin")
	if err := os.Mkdir(context, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "caisson-kube"), filepath.Join(context, "caisson-kube")); err != nil {
		t.Fatal(err)
	}
	podman("build", "--isolation", "chroot", "--tag", "localhost/caisson-kube", "--file", "Containerfile", context)
	if out := podman("image", "inspect", "localhost/caisson-kube", "--format", "{{.Config.User}} {{.Config.Entrypoint}}"); strings.TrimSpace(out) != "65532:65532 [/caisson-kube]" {
		t.Errorf("it runs %s", out)
	}
	at := strings.TrimSpace(podman("image", "mount", "localhost/caisson-kube"))
	has, err := os.ReadDir(at)
	if err != nil || len(has) != 1 {
		t.Errorf("it has %v: %v", has, err)
	}
	podman("image", "unmount", "localhost/caisson-kube")
}
