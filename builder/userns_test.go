// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// inNamespace makes the test's program build what a file says, see [order].
const inNamespace = "CAISSON_TEST_BUILD"

// order holds the work of that program.
type order struct {
	Recipe  spec.Recipe
	Options Options
}

// write writes the order to a file, and returns its name.
func (o order) write(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(struct {
		Recipe  spec.Recipe
		Options any
	}{o.Recipe, map[string]any{"SiteDir": o.Options.SiteDir, "CacheDir": o.Options.CacheDir, "Agent": o.Options.Agent, "Fast": o.Options.Fast,
		"Ledger": o.Options.Ledger, "Lock": o.Options.Lock, "Debs": o.Options.Debs}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "order.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// fill carries out the order in a file and prints the digests that it made.
func (o order) fill() (err error) {
	data, err := os.ReadFile(os.Getenv(inNamespace))
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		return err
	}
	r, err := Build(context.Background(), o.Recipe, "default", "1", o.Options)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(blobDigests(r))
}

func blobDigests(r *Result) map[string]string {
	all := map[string]string{}
	for _, b := range r.Blobs {
		all[b.Title] = b.Digest
	}
	return all
}

// A user who may use some IDs of a user namespace builds what root builds.
func TestLongUserNamespace(t *testing.T) {
	require.Long(t)
	o := testOptions(t)
	recipe := testRecipe()
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	o.Debs = t.TempDir()
	want, err := Build(t.Context(), recipe, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Lock, o.Progress, o.CacheDir = &want.Lock, nil, filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(o.CacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := order{recipe, o}.write(t)
	const host = 3 << 20 // IDs that nobody has
	if err := os.Chown(o.CacheDir, host, host); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(o.CacheDir), filepath.Dir(filepath.Dir(o.CacheDir)), o.Debs, o.SiteDir, filepath.Dir(o.Agent), filepath.Dir(file)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 65536}}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), inNamespace+"="+file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: ids, GidMappings: ids,
		GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	for title, want := range blobDigests(want) {
		if got[title] != want {
			t.Errorf("%s is %s, root makes %s", title, got[title], want)
		}
	}
	if len(got) != len(blobDigests(want)) {
		t.Errorf("made %v, root makes %v", got, blobDigests(want))
	}
}
