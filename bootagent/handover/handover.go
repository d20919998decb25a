// SPDX-License-Identifier: Apache-2.0

// Package handover makes a freshly stacked root into this node: identity,
// network, persisted paths and the stamps that keep systemd from doing first
// -boot work. It runs in the loader, after the stack is mounted and before
// switch_root, so that PID 1 finds everything in place and needs no reload.
//
// It writes into every new root anew; nothing here is configuration that a later
// boot could find changed. What it follows: machine-id(5), hostname(5),
// systemd.network(5), sshd(8), systemd-update-done.service(8). Only the
// initramfs stage imports it.
package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/network"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Node is all that a root is told.
type Node struct {
	Root    string         // where the stack is mounted
	Overlay *spec.Overlay  // of the node
	State   *state.Folder  // identity is kept here
	Disk    bool           // State is on a disk, not in memory
	UUID    string         // SMBIOS, "" where the firmware gives none
	Lease   *network.Lease // nil when the node booted without network
	Say     func(format string, args ...any)

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
		{"network", n.network},
		{"resolver", n.resolver},
		{"certificates", n.certificates},
		{"ssh host key", n.hostKey},
		{"persisted paths", n.persist},
		{"container folders", n.containers},
		{"random seed", n.seed},
		{"update stamps", n.stamps},
		{"state folder", n.stateFolder},
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

// path is name as the loader sees it. Links in the folders on the way are
// followed as they stand; a signed layer has no absolute ones among those that
// are written to here.
func (n *Node) path(name string) string { return filepath.Join(n.Root, name) }

// write puts a file into the new root, and its missing folders. What stood there
// is replaced, never written through: it may be a link.
func (n *Node) write(name string, data []byte, mode fs.FileMode) error {
	to := n.path(name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(to, data, mode); err != nil {
		return err
	}
	n.wrote = append(n.wrote, name)
	return os.Chmod(to, mode) // whatever the umask is
}

// bind shows from at the path to of the new root.
func (n *Node) bind(from, to string) error {
	at := n.path(to)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

func (n *Node) exists(name string) bool {
	_, err := os.Lstat(n.path(name))
	return err == nil
}
