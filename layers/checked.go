// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
)

// Tree is how the kernel checks each block of an image when it is read: by dm-verity. The
// file need not be trusted, the root is.
type Tree struct {
	Path string
	Root verity.Hash
}

// devicePrefix begins the names of our devices; the digest and the loop device follow.
const devicePrefix = "caisson-"

// CanCheck says why the kernel cannot check images while they are read, nil when it can.
func CanCheck() error {
	m, err := openMapper()
	if err != nil {
		return fmt.Errorf("the kernel has no device mapper: %w", err)
	}
	defer m.close()
	targets, err := m.targets()
	if err != nil {
		return fmt.Errorf("list what the device mapper can do: %w", err)
	}
	if !slices.Contains(targets, "verity") {
		return errors.New("the kernel has no dm-verity")
	}
	return nil
}

// checked makes the device through which an image's loop device is read.
func checked(image Image, size int64, loop *os.File) (*os.File, error) {
	salt, err := verity.Parse(filepath.Base(image.Path)) // in a store it is the digest
	if err != nil {
		return nil, err
	}
	hashes := loop
	if verity.Size(size) > 0 { // an image of one block has its root alone
		tree, err := os.Open(image.Tree.Path)
		if err != nil {
			return nil, fmt.Errorf("open hash tree: %w", err)
		}
		defer tree.Close() // only read; the loop device holds the file
		if hashes, err = Attach(tree, 0); err != nil {
			return nil, err
		}
		defer hashes.Close() // the device made below holds it
	}
	var numbers [2]string
	for i, f := range []*os.File{loop, hashes} {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return nil, fmt.Errorf("stat %s: %w", f.Name(), err)
		}
		numbers[i] = fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	m, err := openMapper()
	if err != nil {
		return nil, err
	}
	defer m.close()
	name := devicePrefix + salt.String() + "-" + filepath.Base(loop.Name()) // an image may be mounted twice
	table := fmt.Sprintf("1 %s %s %d %d %d 0 sha256 %s %s", numbers[0], numbers[1], verity.Block, verity.Block, size/verity.Block, image.Tree.Root, salt)
	return m.make(name, "verity", table, size)
}

// Corrupt lists the digests of those mounted images in which the kernel has met a block
// that is not what was signed. It knows of blocks that were read through our devices.
func Corrupt() ([]string, error) {
	m, err := openMapper()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil, nil // nothing is mapped
	}
	if err != nil {
		return nil, err
	}
	defer m.close()
	names, err := m.devices()
	if err != nil {
		return nil, fmt.Errorf("list mapped devices: %w", err)
	}
	var corrupt []string
	for _, name := range names {
		rest, ours := strings.CutPrefix(name, devicePrefix)
		digits, _, _ := strings.Cut(rest, "-")
		digest := digests.FromHex(digits)
		if !ours || !digests.Valid(digest) {
			continue
		}
		status, err := m.status(name)
		switch {
		case errors.Is(err, unix.ENXIO):
			continue // it went meanwhile
		case err != nil:
			return nil, fmt.Errorf("status of device %s: %w", name, err)
		}
		// V while all blocks were right, C when one was not.
		if strings.HasPrefix(status, "C") && !slices.Contains(corrupt, digest) {
			corrupt = append(corrupt, digest)
		}
	}
	return corrupt, nil
}
