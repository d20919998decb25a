// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
)

// rooted gives the one image of a next root its hash tree, and says that the last good run
// has left it as it should be.
func rooted(t *testing.T, n *Next) (image string) {
	t.Helper()
	i := n.Pair.Layer.Images[0]
	data, err := os.ReadFile(n.Store.Path(i.Digest))
	if err != nil {
		t.Fatal(err)
	}
	salt, err := verity.Parse(digest.Hex(i.Digest))
	if err != nil {
		t.Fatal(err)
	}
	root, err := verity.Root(bytes.NewReader(data), i.Size, salt)
	if err != nil {
		t.Fatal(err)
	}
	n.Pair.Layer.Roots = map[string]string{i.Digest: root.String()}
	n.can = func() error { return nil }
	if err := errors.Join(n.Store.MakeTree(i.Digest, root), n.Store.KeepSound([]string{i.Digest})); err != nil {
		t.Fatal(err)
	}
	return i.Digest
}

func (n *Next) check(t *testing.T) error {
	t.Helper()
	return n.Check(t.Context(), stage.Stager{Store: n.Store, Talk: time.Second, Say: t.Logf})
}

// spoil changes the superblock of an image, which mount(2) reads.
func (n *Next) spoil(t *testing.T, image string) {
	t.Helper()
	data, err := os.ReadFile(n.Store.Path(image))
	if err != nil {
		t.Fatal(err)
	}
	copy(data[64:], "\377\377")
	if err := os.WriteFile(n.Store.Path(image), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The images of a next root are the kernel's to check, as the loader's are, and what the kernel
// cannot check after all is read.
func TestCheck(t *testing.T) {
	n := newNext(t)
	image := rooted(t, n)
	if err := errors.Join(n.check(t), n.Stack()); err != nil {
		t.Fatal(err)
	}
	b, err := record.LoadBoot(n.path(paths.NextRoot) + paths.RootBoot)
	if err != nil {
		t.Fatal(err)
	}
	if read, here := b.Images.WhenRead, layers.CanCheck() == nil; here != slices.Equal(read, []string{image}) || here != (b.Images.Why == "") {
		t.Errorf("this kernel can check images: %v; the record has %+v", here, b.Images)
	}
	if sound, err := n.Store.TakeSound(); sound != nil || err != nil {
		t.Errorf("where this root does not come up, the next boot reads all but %v, %v", sound, err)
	}
}

// What the last good run has left is not read, and what has rotted since is not entered.
func TestCheckLeavesImagesToTheKernel(t *testing.T) {
	n := newNext(t)
	image := rooted(t, n)
	n.spoil(t, image)
	if err := n.check(t); err != nil {
		t.Errorf("it was read: %v", err)
	}
	if err := n.Stack(); err == nil || !strings.Contains(err.Error(), image) {
		t.Errorf("a root of it: %v", err)
	}
	if left := n.mounts(t); left != nil {
		t.Errorf("mounts are left: %q", left)
	}
}

// What nobody knows to be good is read before; so is all that the kernel cannot check.
func TestCheckReads(t *testing.T) {
	for name, harm := range map[string]func(n *Next) error{
		"not of the last good run":   func(n *Next) error { return n.Store.KeepSound(nil) },
		"a kernel without dm-verity": func(n *Next) error { n.can = func() error { return errors.New("no dm-verity") }; return nil },
		"a layer without hash trees": func(n *Next) error { n.Pair.Layer.Roots = nil; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNext(t)
			image := rooted(t, n)
			if err := harm(n); err != nil {
				t.Fatal(err)
			}
			n.spoil(t, image)
			if err := n.check(t); err == nil || !strings.Contains(err.Error(), image) {
				t.Errorf("an image that has rotted: %v", err)
			}
		})
	}
}
