// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// TestChecked: what becomes of an image by what is known of it. What is read when differs:
// a rotten one that a good run has left is not read at all here, the kernel finds it out.
func TestChecked(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 300*verity.Block/16)
	d := oci.Describe("application/vnd.caisson.image.v1.squashfs", data)
	if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
		t.Fatal(err)
	}
	salt, err := verity.Parse(digest.Hex(d.Digest))
	if err != nil {
		t.Fatal(err)
	}
	root, err := verity.Root(bytes.NewReader(data), d.Size, salt)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		root   string
		sound  bool
		rot    string // what rots: blob, tree or, before it was ever fetched, none
		online bool
		plain  bool // the kernel checks nothing
		read   bool // it is checked while it is read
		rotten bool // and still wrong
		fails  bool
		says   string
	}{
		"fetched":                                      {root: root.String(), rot: "none", online: true, read: true, says: "fetched base"},
		"there, and not known to be good":              {root: root.String(), read: true},
		"rotten, and not known to be":                  {root: root.String(), rot: "blob", online: true, read: true, says: "fetched again"},
		"rotten, without a registry":                   {root: root.String(), rot: "blob", fails: true},
		"good when the last run ended":                 {root: root.String(), sound: true, read: true},
		"rotten since the last run ended":              {root: root.String(), sound: true, rot: "blob", read: true, rotten: true},
		"its tree was lost":                            {root: root.String(), sound: true, rot: "tree", read: true},
		"a layer without roots":                        {rot: "none", online: true, says: "fetched base"},
		"a layer without roots that has rotted":        {rot: "blob", sound: true, online: true, says: "fetched again"},
		"a kernel without dm-verity":                   {root: root.String(), rot: "none", online: true, plain: true},
		"a kernel without dm-verity, and rot":          {root: root.String(), rot: "blob", online: true, plain: true, says: "fetched again"},
		"a root that is signed, and not of this image": {root: other, online: true, says: "base is not checked while it is read"},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := layers.OpenStore(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if c.rot != "none" {
				if err := store.Put(d.Digest, data); err != nil {
					t.Fatal(err)
				}
				if err := store.MakeTree(d.Digest, root); err != nil {
					t.Fatal(err)
				}
			}
			if c.rot == "blob" {
				bad := bytes.Clone(data)
				bad[len(bad)/2] ^= 1
				err = os.WriteFile(store.Path(d.Digest), bad, 0o600)
			} else if c.rot == "tree" {
				err = os.Truncate(store.Tree(d.Digest), verity.Block)
			}
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			s := Stager{Store: store, Talk: time.Second, Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
			if c.online {
				s.From = r.Source()
			}
			if !c.plain {
				s.Trees = &Trees{Sound: map[string]bool{d.Digest: c.sound}}
			}
			got, err := s.Checked(t.Context(), Part{Name: "base", Blob: spec.Blob{Digest: d.Digest, Size: d.Size}, Root: c.root})
			if (err != nil) != c.fails {
				t.Fatalf("got %v", err)
			}
			if c.fails {
				return
			}
			if _, read := got[d.Digest]; read != c.read || read && got[d.Digest] != root {
				t.Errorf("checked while it is read: %v, want %v", got, c.read)
			}
			if c.read && !store.HasTree(d.Digest, d.Size) {
				t.Error("it has no tree")
			}
			if now, err := os.ReadFile(store.Path(d.Digest)); err != nil || bytes.Equal(now, data) == c.rotten {
				t.Errorf("the blob is right: %v, %v", bytes.Equal(now, data), err)
			}
			if !strings.Contains(strings.Join(said, "\n"), c.says) {
				t.Errorf("said %q, want %q", said, c.says)
			}
		})
	}
}
