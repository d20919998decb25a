// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestExampleArchive: apt takes what examples/kubernetes makes of a kubelet, by the key that is
// printed, and by no other.
func TestExampleArchive(t *testing.T) {
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb", "dpkg-scanpackages", "gpg", "gpgconf")
	program, dir := filepath.Join(t.TempDir(), "kubelet"), filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho Kubernetes v1.37.2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	archived := func() string {
		t.Helper()
		keyring, err := os.MkdirTemp("", "gpg") // its socket's path has a limit
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = exec.Command("gpgconf", "--homedir", keyring, "--kill", "all").Run() // it ends without its directory, too
			if err := os.RemoveAll(keyring); err != nil {
				t.Error(err)
			}
		})
		cmd := exec.Command("../../examples/kubernetes/make-archive", program, dir)
		cmd.Env = append(os.Environ(), "GNUPGHOME="+keyring)
		cmd.Stderr = t.Output()
		key, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(key)
	}
	resolved := func(key string) ([]Deb, *State, error) {
		t.Helper()
		archives, err := Repositories([]spec.Repository{{ID: "kubelet", URL: "file://" + dir, Distributions: []string{"stable"}, Components: []string{"main"}, Key: key}}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), t.TempDir(), "amd64", archives)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(t.Context()); err != nil {
			return nil, nil, err
		}
		debs, err := s.Resolve(t.Context(), Request{Install: []string{"kubelet"}})
		return debs, s, err
	}
	other := archived()
	key := archived()
	debs, s, err := resolved(key)
	if err != nil || len(debs) != 1 || debs[0].Version != "1.37.2" {
		t.Fatalf("%v %v", names(debs), err)
	}
	store := &Store{Dir: t.TempDir()}
	if err := store.Fetch(t.Context(), s, debs, func(Fetched) {}); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("dpkg-deb", "--contents", store.Path(debs[0])).CombinedOutput()
	for _, want := range []string{`-rwxr-xr-x root/root .* ./usr/bin/kubelet\n`, `drwxr-xr-x root/root .* ./var/lib/kubelet/\n`} {
		if !regexp.MustCompile(want).Match(said) || err != nil {
			t.Errorf("it has no %s: %v\n%s", want, err, said)
		}
	}
	if _, _, err := resolved(other); err == nil {
		t.Error("it is taken by a key that did not sign it")
	}
}
