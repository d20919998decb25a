// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/traces"
)

// published is a registry with layers, and a node that boots from it.
type published struct {
	*boot
	*fixture.Fleet
	t *testing.T
}

func publish(t *testing.T) *published {
	t.Helper()
	f := fixture.NewFleet(t)
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store, err := layers.OpenStore(folder.Path("store"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBoot(screen.Console{W: &bytes.Buffer{}}, machine{bootstrap: spec.Bootstrap{Fleet: "metal-a"}, limits: usual}, nil)
	b.disk.folder, b.disk.store, b.ways.source, b.chooser.decided = folder, store, f.Registry.Source(), traces.Into()
	return &published{b, f, t}
}

// layer pushes one with a single image and returns what an overlay says of it.
func (p *published) layer(image string) *track.Found {
	p.t.Helper()
	push := func(d oci.Descriptor) oci.Descriptor {
		if err := p.Registry.PutData(p.t.Context(), oci.RepoLayer, d); err != nil {
			p.t.Fatal(err)
		}
		return d.Bare()
	}
	blob := push(oci.Describe("application/vnd.caisson.image.v1.squashfs", []byte(image)))
	kernelAt := push(oci.Describe("application/vnd.caisson.kernel.v1", []byte("kernel of "+image)))
	inImage, inKernel := spec.Blob{Digest: blob.Digest, Size: blob.Size}, spec.Blob{Digest: kernelAt.Digest, Size: kernelAt.Size}
	var roots map[string]string
	if size := int64(len(image)); size > 0 && size%verity.Block == 0 {
		salt, err := verity.Parse(digest.Hex(blob.Digest))
		if err != nil {
			p.t.Fatal(err)
		}
		root, err := verity.Root(strings.NewReader(image), size, salt)
		if err != nil {
			p.t.Fatal(err)
		}
		roots = map[string]string{blob.Digest: root.String()}
	}
	config, err := spec.Encode(spec.Layer{Roots: roots, APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Arch: runtime.GOARCH,
		Kernel: spec.KernelBlob{Release: kernel.Release(), Blob: inKernel}, Initrd: inKernel, Images: []spec.Image{{Name: "base", Blob: inImage}}})
	if err != nil {
		p.t.Fatal(err)
	}
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer,
		Config: push(oci.Describe(oci.TypeLayerConfig, config)), Layers: []oci.Descriptor{blob, kernelAt}})
	digest, err := p.Registry.PutManifest(p.t.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw)
	if err != nil {
		p.t.Fatal(err)
	}
	return &track.Found{Overlay: spec.Overlay{Core: spec.Core{Layer: digest}}, Generation: state.Generation{Layer: digest}}
}

func (p *published) prepared(found *track.Found) spec.Layer {
	p.t.Helper()
	root, err := p.chooser.prep.prepare(p.t.Context(), p.ways.source, found)
	if err != nil {
		p.t.Fatal(err)
	}
	return root.layer
}

func TestPrepareWithoutNetwork(t *testing.T) {
	p := publish(t)
	found := p.layer("image")
	online := p.prepared(found)
	p.ways.source = nil
	if offline := p.prepared(found); offline.Images[0] != online.Images[0] {
		t.Errorf("from the store: %+v, from the registry: %+v", offline.Images, online.Images)
	}
	if _, err := p.chooser.prep.prepare(t.Context(), nil, p.otherRegistry().layer("never fetched")); err == nil {
		t.Error("a layer that is nowhere was prepared")
	}
}

// Without network a changed loader enters the kernel that is on the disk, or none.
func TestTheKernelIsOnTheDisk(t *testing.T) {
	for _, disk := range []string{"", "/dev/vda1"} {
		p := publish(t)
		p.disk.device = disk
		layer := p.prepared(p.layer("image"))
		if got := p.disk.store.Has(layer.Kernel.Digest, layer.Kernel.Size); got != (disk != "") {
			t.Errorf("disk %q: the kernel is kept: %v", disk, got)
		}
	}
}

// otherRegistry leaves the node as it is.
func (p *published) otherRegistry() *published {
	return &published{p.boot, publish(p.t).Fleet, p.t}
}

// Nothing on the disk may lead from a signed digest to another layer's content.
func TestADescriptionBelongsToItsDigest(t *testing.T) {
	p := publish(t)
	signed, other := p.layer("signed"), p.layer("other")
	p.prepared(signed)
	p.prepared(other)
	p.ways.source = nil
	theirs, err := os.ReadFile(p.disk.store.Path(other.Overlay.Layer))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.disk.store.Path(signed.Overlay.Layer), theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	if layer, err := p.chooser.prep.prepare(t.Context(), nil, signed); err == nil {
		t.Errorf("the disk turned one layer into another: %+v", layer.layer.Images)
	}
}

// A blob that was altered and cannot be deleted, because the disk is read-only or
// the file immutable, is found by every later look for it.
func TestABadBlobThatStaysIsNotUsed(t *testing.T) {
	require.Root(t)
	runtime.LockOSThread() // the mount namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	p := publish(t)
	found := p.layer("image")
	image := p.disk.store.Path(p.prepared(found).Images[0].Digest)
	if err := os.WriteFile(image, []byte("IMAGE"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(image)
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH) // a lazy unmount: the mount is this test's alone
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.chooser.prep.prepare(t.Context(), p.ways.source, found); !errors.Is(err, layers.ErrCorrupt) {
		t.Errorf("an altered image would be mounted: %v", err)
	}
}

func TestALinkInTheStoreIsFetchedAgain(t *testing.T) {
	p := publish(t)
	found := p.layer("image")
	image := p.disk.store.Path(p.prepared(found).Images[0].Digest)
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.Rename(image, theirs); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(theirs, image); err != nil { // whole, and writable by another name
		t.Fatal(err)
	}
	p.prepared(found)
	f, err := ownfiles.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close() // only read
}

// A node that came up before boots with other arguments rather than not at all; a
// new generation is not begun without its own.
func TestArgumentsThatCannotBeEntered(t *testing.T) {
	p := publish(t)
	found := p.layer("image")
	p.prepared(found)
	p.ways.source = nil // and the kernel was never fetched: there is no disk
	found.Overlay.KernelArgs = []string{"quiet"}
	if layer, err := p.chooser.prep.prepare(t.Context(), p.ways.source, found); err == nil {
		t.Errorf("a new generation would boot without its arguments: %+v", layer.layer.Images)
	}
	found.Unchanged = true
	p.prepared(found)
}

// Behind firmware that verifies, the loader enters no kernel that this would not start: it is refused
// before the boot is counted and anything is left. A node that came up before boots with other
// arguments rather than not at all.
func TestAKernelThatFirmwareDoesNotStart(t *testing.T) {
	p := publish(t)
	found := p.layer("image")
	p.machine.variables = t.TempDir()
	if err := os.WriteFile(filepath.Join(p.machine.variables, efivar.SecureBoot.File()), []byte{6, 0, 0, 0, 1}, 0o600); err != nil {
		t.Fatal(err)
	}
	p.prepared(found) // it runs
	found.Overlay.KernelArgs = []string{"quiet"}
	_, err := p.chooser.prep.prepare(t.Context(), p.ways.source, found)
	if refusal.Of(err) != refusal.Kernel || errors.Is(err, errStartOver) || !reached(err) {
		t.Errorf("%v", err)
	}
	if begun := p.attempt.begun(found.Generation); begun != 0 {
		t.Errorf("%d attempts are counted", begun)
	}
	found.Unchanged = true
	p.prepared(found)
}

// TestAKernelThatIsNotTaken by the running one costs no restart and no attempt: what ran before is
// entered, and what is proved goes on where only its arguments are others.
func TestAKernelThatIsNotTaken(t *testing.T) {
	require.Root(t)
	runtime.LockOSThread() // the mount namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	p := publish(t)
	p.disk.device = "/dev/vda1"
	layer := p.layer("image").Overlay.Layer // its kernel is a text
	p.overlay(1, layer)
	p.machine.bootstrap.Needs = []string{"a bootstrap of its own"}
	if got := p.boots(); got != 1 {
		t.Fatalf("generation %d", got)
	}
	p.comesUp()
	p.Overlay(spec.Overlay{Core: spec.Core{Layer: layer, KernelArgs: []string{"quiet"}}}, sign.Predicate{Generation: 2})
	for range 4 {
		got := p.boots()
		s, err := p.disk.folder.Load()
		if err != nil || got != 1 || s.Staged == nil || s.Staged.Generation != 2 || s.Staged.Attempts != 0 || p.attempt.unproven {
			t.Fatalf("generation %d, staged %+v, %v", got, s.Staged, err)
		}
		if !strings.Contains(p.chooser.detail, "load kernel for kexec") {
			t.Errorf("%q", p.chooser.detail)
		}
	}
	p.comesUp()
	if got := p.boots(); got != 2 {
		t.Errorf("proved, and generation %d", got)
	}
}
