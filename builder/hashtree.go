// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"os"
	"path/filepath"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/spec"
)

// imageName is a step's image in its directory.
const imageName = "image.squashfs"

// rootOf returns the root of the hash tree of the image in dir. The tree itself is made
// by the nodes that check by it.
func rootOf(dir string, i spec.Image) (string, error) {
	salt, err := verity.Parse(digests.Hex(i.Digest))
	if err != nil {
		return "", err
	}
	f, err := os.Open(filepath.Join(dir, imageName))
	if err != nil {
		return "", err
	}
	defer f.Close() // only read
	root, err := verity.Root(f, i.Size, salt)
	if err != nil {
		return "", fmt.Errorf("hash tree of image %s: %w", i.Name, err)
	}
	return root.String(), nil
}

// completeRoot adds the root to what a release without roots left in the cache. No key
// says that it is missing: all else of the step is as this release makes it.
func (m *made) completeRoot() (err error) {
	if m.Image == nil || m.Root != "" {
		return nil
	}
	if m.Root, err = rootOf(m.dir, *m.Image); err != nil {
		return err
	}
	return m.write(m.dir)
}
