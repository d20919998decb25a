// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// persist shows the state disk's copy of each persisted path, and of those that perhost's
// table keeps. Folders that the
// layer has and the disk lacks come over with the layer's mode and owner, and
// with their files, because what is new to the disk is new as a whole; what the
// disk has is left as it is. A disk that is full, read-only or tampered with is
// said, and does not stop the boot.
func (n *Node) persist() error {
	all := slices.Clone(n.Overlay.Persist)
	for _, row := range perhost.Table {
		within := func(dir string) bool { return rules.Within(row.Keep, dir) }
		if row.Keep != "" && n.Disk && n.exists(row.Keep) && !n.sites(row.Keep) && !slices.ContainsFunc(all, within) {
			all = append(all, row.Keep)
		}
	}
	for _, path := range all {
		if !n.Disk {
			n.Say("no state disk: %s is not kept over a reboot", path)
			continue
		}
		err := rules.Persist(path)
		if err == nil {
			err = n.keepOnDisk(path)
		}
		if err != nil {
			n.Say("%s is not kept over a reboot: %v", path, err)
		} else if n.ReadOnly {
			n.Say("%s shows what the disk has; changes are not kept over a reboot", path)
		}
	}
	return nil
}

// keepOnDisk shows the disk's copy of a directory in its place.
func (n *Node) keepOnDisk(path string) error {
	above, err := directory(n.State.Path("persist"), filepath.Dir(path))
	if err != nil {
		return err
	}
	defer above.Close() // only held
	// What the disk has is shown all the same.
	fault.Say(n.Say, fault.In(n.seedFrom(n.path(path), above, filepath.Base(path)), "seed %s", path))
	kept, err := directory(n.State.Path("persist"), path)
	if err != nil {
		return err
	}
	defer kept.Close() // only held
	return n.show(kept, path)
}

// runtimes are directories in which container runtimes stack overlays of their own, each with
// the programs whose directory it is: not every package of theirs has it.
var runtimes = []struct {
	path     string
	programs []string
}{
	{"/var/lib/containerd", []string{"/usr/bin/containerd"}},
	{"/var/lib/docker", []string{"/usr/bin/dockerd", "/usr/sbin/dockerd"}},
	{"/var/lib/kubelet", []string{"/usr/bin/kubelet"}},
	{"/var/lib/containers", []string{"/usr/bin/podman", "/usr/bin/crio", "/usr/bin/buildah"}},
}

// containers puts a real file system below the directories of container runtimes: the
// kernel refuses an upper directory that is itself on an overlay, as a read-only state disk
// is.
func (n *Node) containers() error {
	for _, r := range runtimes {
		path := r.path
		if !n.exists(path) && !slices.ContainsFunc(r.programs, n.exists) || n.sites(path) {
			continue
		}
		if n.Disk && !n.ReadOnly {
			err := n.keepOnDisk(path)
			if err == nil {
				continue
			}
			n.Say("%s is not kept over a reboot: %v", path, err)
		}
		at, err := directory(n.Root, path)
		if err != nil {
			return err
		}
		err = unix.Mount("caisson", safepath.Name(int(at.Fd())), "tmpfs", unix.MS_NOSUID, "mode=0711,size=50%")
		_ = at.Close() // only held
		if err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", path, err)
		}
	}
	return nil
}

// sites reports whether the site itself mounts something on a directory or above it, or keeps
// that on a disk.
func (n *Node) sites(path string) bool {
	kept := func(dir string) bool {
		return n.Disk && !n.ReadOnly && rules.Persist(dir) == nil && rules.Within(path, dir)
	}
	return slices.ContainsFunc(n.Overlay.Persist, kept) ||
		slices.ContainsFunc(n.Overlay.Items.Mounts, func(m spec.Mount) bool { return rules.Within(path, m.Target) })
}

// stateDirectory shows the agent's own directory where the service looks for it. What it is
// shown over is as closed as it is.
func (n *Node) stateDirectory() error {
	at, err := directory(n.Root, paths.State)
	if err != nil {
		return err
	}
	if err := errors.Join(at.Chmod(0o700), at.Close()); err != nil {
		return err
	}
	return n.bind(n.State.Path(), paths.State)
}

// sealUsr makes /usr read-only for everyone, root too.
func (n *Node) sealUsr() error {
	if err := n.bind(n.path("/usr"), "/usr"); err != nil {
		return err
	}
	return fault.In(unix.Mount("", n.path("/usr"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""), "remount /usr read-only")
}

// seedFrom seeds from a path; a missing one is an empty one.
func (n *Node) seedFrom(from string, above safepath.Dir, name string) error {
	src, err := hold(from)
	if err != nil {
		return fault.In(fault.But(err, fs.ErrNotExist), "seed")
	}
	defer src.Close() // only read
	return n.seedDir(src, above, name)
}

// seedDir brings a directory over to a name in another one, or of it what that lacks.
// What a user put in a directory's place is never followed, nor what one puts there
// meanwhile: before a soft-reboot users go on, on the disk and in the new root.
func (n *Node) seedDir(src, above safepath.Dir, name string) error {
	to, err := holdIn(above, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.In(n.bring(src, above, name), "bring %s", src.Name())
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // the disk has something else
	case err != nil:
		return err
	}
	defer to.Close() // only held
	entries, err := src.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("read %s: %w", src.Name(), err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below, err := holdIn(src, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		err = n.seedDir(below, to, e.Name())
		_ = below.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}

// bring copies a whole directory to the disk, or no part of it: a part, left by a
// power cut, would count as what the disk has for ever. What has come to the name
// meanwhile stays.
func (n *Node) bring(src, to safepath.Dir, name string) error {
	part := n.State.Path("seed.partial")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := copyTree(src.File, part); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	if err := unix.Syncfs(int(to.Fd())); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	err := unix.Renameat2(unix.AT_FDCWD, part, int(to.Fd()), name, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrExist) {
		return os.RemoveAll(part)
	}
	if err != nil {
		return err
	}
	return to.Sync()
}

func copyTree(from *os.File, to string) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	entries, err := from.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(to, e.Name())
		switch {
		case e.IsDir(), e.Type().IsRegular():
			err = copyOne(from, e.Name(), to)
		case e.Type() == fs.ModeSymlink:
			err = copyLink(from, e.Name(), to)
		}
		if err != nil {
			return err
		}
	}
	return like(info, to) // last: until it has its owner and mode, it is nobody's
}

// copyOne copies a directory or a file, whatever else is put in its place meanwhile.
func copyOne(dir *os.File, name, to string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	from := os.NewFile(uintptr(fd), name)
	defer from.Close() // only read
	info, err := from.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return copyTree(from, to)
	case info.Mode().IsRegular():
		return copyFile(from, info, to)
	}
	return fmt.Errorf("%s is neither a directory nor a file any more", name)
}

func copyFile(from io.Reader, info fs.FileInfo, to string) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, from); err != nil {
		_ = out.Close() // the copy has failed already
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return like(info, to)
}

func copyLink(dir *os.File, name, to string) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, target)
	if err != nil {
		return &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return os.Symlink(string(target[:n]), to)
}

// like gives a path the owner and mode of info; chown first, it drops setuid.
func like(info fs.FileInfo, path string) error {
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Lchown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		return err
	}
	return unix.Chmod(path, owner.Mode&0o7777)
}
