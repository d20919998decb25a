// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/ukitest"
)

// A registry without TLS is recognised by what the transport says, on both ways.
func TestPlainRegistryIsHinted(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	r, err := registry.Open(strings.TrimPrefix(s.URL, "http://")+"/x", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, read := r.Manifest(t.Context(), oci.RepoFleet, "index")
	for what, err := range map[string]error{"read": read, "write": r.PutData(t.Context(), oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty))} {
		var hinted interface{ Hint() string }
		if !errors.As(cli.Reached(err), &hinted) || !strings.Contains(hinted.Hint(), "--plain-http") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestADiskThatTakesNothing: whatever program says in its own words that a disk is full, the
// error names the directory, and what to do.
func TestADiskThatTakesNothing(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("caisson-test", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	wrong := errors.New("mksquashfs: exit status 1")
	err := cli.Full(wrong, t.TempDir(), dir)
	var hinted interface{ Hint() string }
	if !errors.Is(err, wrong) || !strings.Contains(err.Error(), dir+" is full") || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "another directory") {
		t.Errorf("%v", err)
	}
	if err := cli.Full(nil, dir); err != nil {
		t.Error(err)
	}
	if err := cli.Full(wrong, t.TempDir(), "", filepath.Join(dir, "gone")); err != wrong {
		t.Errorf("%v: no directory of it is full", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rest"), make([]byte, 4<<20), 0o600); err == nil {
		t.Fatal("it is not full")
	}
	pair, program := filepath.Join(t.TempDir(), "pair"), filepath.Join(t.TempDir(), "program.efi")
	if _, err := newTestApp(t, "keys", "generate", "--boot", pair); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, ukitest.Stub(8), 0o600); err != nil {
		t.Fatal(err)
	}
	takesNothing := func(hint string) {
		t.Helper()
		for _, verb := range [][]string{{"keys", "generate", dir + "/operator"}, {"keys", "generate", "--boot", dir + "/boot"},
			{"keys", "revoke-loader", program, "--kek", pair, "--out", dir + "/dbx.auth"},
			{"keys", "enroll-image", "--pk", pair, "--kek", pair, "--db", pair + ".crt", "--systemd-boot", program, "--out", dir + "/enroll.iso"}} {
			_, err := newTestApp(t, verb...)
			if err = cli.Reached(err); err == nil || !strings.Contains(err.Error(), dir) || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), hint) {
				t.Errorf("%v: %v", verb, err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("%v leaves %v, %v", verb, left, err)
			}
		}
	}
	takesNothing("free some space")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	takesNothing("read-only")
}

// newTestApp runs a verb.
func newTestApp(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newApp(&out, &out).root()
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
