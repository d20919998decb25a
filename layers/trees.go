// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/verity"
)

// Tree is where the hash tree of a blob is, or would be: beside it, and collected with it.
func (s *Store) Tree(digest string) string { return s.Path(digest) + ".tree" }

// HasTree says whether the tree of a blob of that size is there. It does not read it.
func (s *Store) HasTree(digest string, size int64) bool {
	info, err := os.Lstat(s.Tree(digest))
	return err == nil && info.Mode().IsRegular() && info.Size() == verity.Size(size)
}

// MakeTree reads a blob, writes its hash tree and compares the root: equal roots are
// equal blobs, so this is as good as [Store.Verify]. A blob that differs stays.
func (s *Store) MakeTree(digest string, root verity.Hash) error {
	f, err := ownfiles.Open(s.Path(digest))
	if err != nil {
		return err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	salt, err := verity.Parse(digests.Hex(digest))
	if err != nil {
		return err
	}
	return durable.Fill(s.Tree(digest), 0o600, func(tree *os.File) error {
		got, err := verity.Write(tree, f, info.Size(), salt)
		if err == nil && got != root {
			err = fmt.Errorf("blob %s has the root %s, not %s: %w", digest, got, root, ErrCorrupt)
		}
		return err
	})
}

// maxSound is more than the list of any layer's images has.
const maxSound = 64 << 10

func (s *Store) sound() string { return filepath.Join(s.dir, "sound") }

// TakeSound returns which blobs the last good run has left as they should be, and forgets
// it durably: a boot that dies is followed by one that reads them. Nobody is to trust what
// the list says of content, which the kernel checks against a signed root.
func (s *Store) TakeSound() (map[string]bool, error) {
	data, err := ownfiles.ReadFile(s.sound(), maxSound)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err = errors.Join(err, durable.Remove(s.sound())); err != nil {
		return nil, err
	}
	sound := map[string]bool{}
	for _, digest := range strings.Fields(string(data)) {
		sound[digest] = true
	}
	return sound, nil
}

// KeepSound says which blobs were read in a good run without an error. They, and their
// trees, are on the disk: both are synced before they have their names.
func (s *Store) KeepSound(digests []string) error {
	return durable.WriteFile(s.sound(), []byte(strings.Join(digests, "\n")), 0o600)
}
