// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/loader"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLoaderOfDisks: the file system that 'caisson loader' publishes is one that the agent finds
// whole on a disk, and brings a newer loader into; fsck.vfat has nothing to say before and after.
func TestLoaderOfDisks(t *testing.T) {
	require.Tool(t, "fsck.vfat", "mdir")
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	push := func(number int64) spec.Loader {
		l := &media.Loader{Image: bytes.Repeat([]byte{byte(number), 'x'}, 5_000_000), Manager: []byte("manager"), Arch: "amd64", Number: number, Date: time.Unix(1767225600, 0)}
		pushed, err := l.Push(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return pushed
	}
	first, second := push(1767225600), push(1767225601)
	fetch := func(b spec.Blob) (io.ReadCloser, error) {
		return r.Source().Blob(t.Context(), oci.RepoLoader, oci.Descriptor{Digest: b.Digest, Size: b.Size}, 0)
	}
	partition := filepath.Join(t.TempDir(), "esp")
	to, err := os.Create(partition)
	if err != nil {
		t.Fatal(err)
	}
	body, err := fetch(first.ESP)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close() // only read
	if _, err := io.Copy(to, loader.Verified(body, first.ESP)); err != nil {
		t.Fatal(err)
	}
	if err := to.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	whole := func() {
		t.Helper()
		if out, err := exec.Command("fsck.vfat", "-n", partition).CombinedOutput(); err != nil {
			t.Errorf("fsck.vfat: %v\n%s", err, out)
		}
	}
	whole()
	p, err := loader.Open(partition)
	if err != nil {
		t.Fatal(err)
	}
	if came, why, err := p.Follow(first, fetch); came != 0 || why.Text != "" || err != nil {
		t.Errorf("the loader that is there: %d, %+v, %v", came, why, err)
	}
	if came, why, err := p.Follow(second, fetch); came != second.Number || why.Text != "" || err != nil {
		t.Errorf("the newer one: %d, %+v, %v", came, why, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	whole()
	out, err := exec.Command("mdir", "-b", "-i", partition, "::/EFI/Linux").CombinedOutput()
	if err != nil || bytes.Count(out, []byte("caisson-")) != 2 || bytes.Count(out, []byte("+3.efi")) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
