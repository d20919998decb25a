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
	"syscall"

	"golang.org/x/sys/unix"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
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
	table := fmt.Sprintf("1 %s %s %d %d %d 0 sha256 %s %s", numbers[0], numbers[1], verity.Block, verity.Block,
		size/verity.Block, image.Tree.Root, salt)
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
		_, status, err := m.ask(name, 0)
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

// shared opens the device through which an image is read already, nil where there is none.
// What is mounted from one device is one file system: what the kernel has in memory of it,
// it does not read, check and unpack again. That makes a soft-reboot short.
func shared(image Image, file os.FileInfo) (*os.File, error) {
	salt, err := verity.Parse(filepath.Base(image.Path)) // in a store it is the digest
	if err != nil {
		return nil, err
	}
	m, err := openMapper()
	if err != nil {
		return nil, err
	}
	defer m.close()
	names, err := m.devices()
	if err != nil {
		return nil, fmt.Errorf("list mapped devices: %w", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, devicePrefix+salt.String()+"-") {
			continue
		}
		device, err := m.sharedAs(name, image, salt, file)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
			continue // it went meanwhile
		}
		if device != nil || err != nil {
			return device, err
		}
	}
	return nil, nil
}

// sharedAs opens a device if it checks the image by the same root, has met no wrong block
// and reads the file that has this name now: one that was replaced may have rotted.
func (m *mapper) sharedAs(name string, image Image, salt verity.Hash, file os.FileInfo) (*os.File, error) {
	_, status, err := m.ask(name, 0)
	if err != nil {
		return nil, err
	}
	dev, table, err := m.ask(name, unix.DM_STATUS_TABLE_FLAG)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(table) // as checked has written them
	if status != "V" || len(words) != 10 || words[8] != image.Tree.Root.String() || words[9] != salt.String() {
		return nil, nil
	}
	_, loop, _ := strings.Cut(words[1], ":")
	if same, err := reads("/dev/loop"+loop, file); err != nil || !same {
		return nil, err
	}
	return openMapped(dev)
}

// reads reports whether a loop device is of a file.
func reads(loop string, file os.FileInfo) (bool, error) {
	f, err := os.Open(loop)
	if err != nil {
		return false, err
	}
	defer f.Close() // nothing is written through it
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return false, fmt.Errorf("status of %s: %w", loop, err)
	}
	st, ok := file.Sys().(*syscall.Stat_t)
	return ok && info.Inode == st.Ino && info.Device == st.Dev, nil
}

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
	return plain.Map(strings.Fields(string(data)), func(digest string) (string, bool) { return digest, true }), nil
}

// KeepSound says which blobs were read in a good run without an error. They, and their
// trees, are on the disk: both are synced before they have their names.
func (s *Store) KeepSound(digests []string) error {
	return durable.WriteFile(s.sound(), []byte(strings.Join(digests, "\n")), 0o600)
}
