// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// host are the arguments that podman takes besides on machines that a test may run
// on: other control groups than crun's, limits that cannot be raised, no bridge. They
// take nothing away from the container's confinement that the documented line has.
var host = [][2]string{
	{"", ""},
	{"--runtime runc --cgroup-manager cgroupfs", "--ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --network host"},
}

// The line of docs/building.md for a container builds a layer, with the image that
// make container makes.
func TestLongContainer(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "podman", "mmdebstrap")
	page, err := os.ReadFile("../../docs/building.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("`podman run (.*) --to …`").FindSubmatch(page)
	if line == nil {
		t.Fatal("docs/building.md has no line for podman")
	}
	sh := func(script string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = t.TempDir()
		return cmd.CombinedOutput()
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := sh("make -s -C " + top + " container BIN=$PWD"); err != nil {
		t.Fatalf("make container: %v\n%s", err, said)
	}
	var before, after string
	for i, h := range host {
		said, err := sh("podman " + h[0] + " run " + h[1] + " --rm localhost/caisson version")
		if err == nil {
			before, after = h[0], h[1]
			break
		}
		if i == len(host)-1 {
			t.Fatalf("podman starts no container: %v\n%s", err, said)
		}
	}
	const volume = "caisson-test-cache"
	t.Cleanup(func() { sh("podman volume rm --force " + volume) })
	podman := func(args string) string { return "podman " + before + " run " + after + " " + args + "\n" }
	said, err := sh(podman(`--rm --volume "$PWD:/site" localhost/caisson init . --registry oci:out --kernel linux-image-cloud-amd64`) +
		podman(strings.ReplaceAll(string(line[1]), "caisson-cache:", volume+":")+" --key keys/release.key --fast"))
	if err != nil || !strings.Contains(string(said), "pushed 1 layer as ") {
		t.Errorf("podman run %s: %v\n%s", line[1], err, said)
	}
}
