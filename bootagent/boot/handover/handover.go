// SPDX-License-Identifier: Apache-2.0

// Package handover makes a freshly stacked root into this node: identity,
// network, persisted paths and the stamps that keep systemd from doing its work
// of a first boot. It runs after the stack is mounted and before the root is entered, so
// that PID 1 finds everything in place and needs no reload.
//
// It writes into every new root; nothing here is configuration that a later
// boot could find changed. What it follows: machine-id(5), hostname(5),
// systemd.network(5), sshd(8), systemd-update-done.service(8). Makers
// of roots import it.
package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// Node holds the files that handover writes into a root.
type Node struct {
	Root     string        // where the stack is mounted
	Overlay  *spec.Overlay // of the node
	Version  string        // of the layer
	State    *state.Folder // identity is kept here
	Disk     bool          // State is on a disk, not in memory
	ReadOnly bool          // what is written to the disk stays in memory
	Watchdog time.Duration // the loader has started one with this timeout; 0 without one
	Unproven bool          // no boot has proved the generation yet, and this attempt is counted
	UUID     string        // SMBIOS, "" where the firmware gives none
	Lease    *state.Lease  // nil when the node booted without network
	Network  spec.Network  // what the loader made for it, the interface of the lease last; empty from loaders of 0.9
	Say      func(format string, args ...any)

	SecretDir    string // where secrets are opened; "" is the real place
	SecretsLater bool   // they are opened by the agent: no memory below /run goes on

	Originals []item.Entry // what stood where files of the overlay are now; Do fills it in

	wrote []string
}

// Do writes everything and returns the paths that it wrote, as seen from inside
// the new root, sorted.
func (n *Node) Do() ([]string, error) {
	steps := []struct {
		name string
		do   func() error
	}{
		{"machine-id", n.machineID},
		{"host name", n.hostName},
		{"os-release", n.release},
		{"network", n.network},
		{"resolver", n.resolver},
		{"certificates", n.certificates},
		{"persisted paths", n.persist}, // before what is one machine's, which no disk is seeded with
		{"ssh host key", n.hostKey},
		{"files of one machine", n.perHost},
		{"container directories", n.containers},
		{"files", n.files},
		{"order of mounts", n.order},
		{"what is set before services start", n.early},
		{"random seed", n.seed},
		{"supervision", n.supervise},
		{"memory", n.memory},
		{"update stamps", n.stamps},
		{"state directory", n.stateDirectory},
		{"mounts that stay", n.stay},
		{"read-only /usr", n.sealUsr},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("handover: %s: %w", step.name, err)
		}
	}
	slices.Sort(n.wrote)
	return slices.Compact(n.wrote), nil
}

// path is name as the loader sees it.
func (n *Node) path(name string) string { return filepath.Join(n.Root, name) }

// directory opens the one at path below base and makes what is missing of it, each
// in the one that is held open before it. A link on the way is an error: on a state disk,
// and in what is shown of it, a user may have put it there, or put it there just now, to
// have something else written or mounted over.
func directory(base, path string) (dir safepath.Dir, err error) {
	at, in, name := base, unix.AT_FDCWD, base
	for part := range strings.FieldsFuncSeq("./"+path, func(r rune) bool { return r == '/' }) {
		if at = filepath.Join(at, part); in != unix.AT_FDCWD {
			name = part
		}
		if err := unix.Mkdirat(in, name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return dir, &fs.PathError{Op: "mkdir", Path: at, Err: err}
		}
		next, err := holdAs(in, name, at)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return dir, fmt.Errorf("%s is not a directory", at)
		}
		if err != nil {
			return dir, err
		}
		if in != unix.AT_FDCWD {
			_ = dir.Close() // only held
		}
		dir, in = next, int(next.Fd())
	}
	return dir, nil
}

// hold opens a directory to which no link leads, for what is done to it whatever its
// name leads to by then.
func hold(path string) (safepath.Dir, error) { return holdAs(unix.AT_FDCWD, path, path) }

// holdIn is hold for a name in a directory that is held.
func holdIn(dir safepath.Dir, name string) (safepath.Dir, error) {
	return holdAs(int(dir.Fd()), name, filepath.Join(dir.Name(), name))
}

// holdAs is hold for a name in a descriptor; errors call it path.
func holdAs(in int, name, path string) (safepath.Dir, error) {
	fd, err := unix.Openat2(in, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return safepath.Dir{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return safepath.Dir{File: os.NewFile(uintptr(fd), path)}, nil
}

// write puts a file into the new root, and its missing directories.
func (n *Node) write(name string, data []byte, mode fs.FileMode) error {
	return n.put(name, safepath.Thing{Mode: unix.S_IFREG | uint32(mode.Perm()), Content: data, UID: os.Geteuid(), GID: os.Getegid()})
}

// put puts something into the new root, and its missing directories. What stood
// there is replaced, never written through: it may be a link.
func (n *Node) put(name string, t safepath.Thing) error {
	dir, err := directory(n.Root, filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	if err := dir.Put(filepath.Base(name), t); err != nil {
		return err
	}
	n.wrote = append(n.wrote, name)
	return nil
}

// bind shows from at the path to of the new root. What is mounted, and where, is held
// open: before a soft-reboot users go on, and may put a link there at any moment.
func (n *Node) bind(from, to string) error {
	dir, err := hold(from)
	if err != nil {
		return err
	}
	defer dir.Close() // only held
	return n.show(dir, to)
}

// show is bind for what is held open.
func (n *Node) show(dir safepath.Dir, to string) error {
	at, err := directory(n.Root, to)
	if err != nil {
		return err
	}
	defer at.Close() // only held
	if err := unix.Mount(safepath.Name(int(dir.Fd())), safepath.Name(int(at.Fd())), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", dir.Name(), to, err)
	}
	return nil
}

func (n *Node) exists(name string) bool {
	_, err := os.Lstat(n.path(name))
	return err == nil
}
