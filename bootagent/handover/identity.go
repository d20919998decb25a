// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/durable"
)

// machineID writes /etc/machine-id. A node with a disk has a random one for
// life; a diskless one is always the same without remembering anything.
func (n *Node) machineID() error {
	id := derivedID(n.Overlay.Fleet, n.Overlay.Node, n.UUID)
	if n.Disk {
		kept, err := keep(n.State, "machine-id", func() ([]byte, error) {
			var random [16]byte
			rand.Read(random[:])
			return []byte(formatID(random)), nil
		})
		if err != nil {
			return err
		}
		id = string(kept)
	}
	return n.write("/etc/machine-id", []byte(id), 0o444)
}

// derivedID is an HMAC and not a plain hash, so that one fleet's ids tell
// nothing to another.
func derivedID(fleet, node, uuid string) string {
	mac := hmac.New(sha256.New, []byte("caisson machine-id "+fleet))
	fmt.Fprintf(mac, "%d %s %s", len(node), node, uuid)
	return formatID([16]byte(mac.Sum(nil)[:16]))
}

// formatID sets the bits that make the id a random UUID (version 4), as
// systemd-machine-id-setup does.
func formatID(id [16]byte) string {
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id[:]) + "\n"
}

func (n *Node) hostName() error {
	node := n.Overlay.Node
	if err := n.write("/etc/hostname", []byte(node+"\n"), 0o644); err != nil {
		return err
	}
	names := node
	if n.Lease != nil && n.Lease.Domain != "" {
		names = node + "." + n.Lease.Domain + " " + node
	}
	hosts := "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + names + "\n"
	return n.write("/etc/hosts", []byte(hosts), 0o644)
}

// seed carries entropy from boot to boot on nodes that have a disk. The seed is
// replaced before it is used, so that a cut never makes it serve twice.
func (n *Node) seed() error {
	if !n.Disk {
		return nil
	}
	old, err := os.ReadFile(n.State.Path("identity", "random-seed"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := make([]byte, 512)
	rand.Read(next)
	if err := durable.WriteFile(n.State.Path("identity", "random-seed"), next, 0o600); err != nil {
		return err
	}
	if len(old) == 0 {
		return nil
	}
	return n.write("/var/lib/systemd/random-seed", old, 0o600)
}

// keep returns the content of an identity file and makes it first where it is
// missing or empty.
func keep(s *state.Folder, name string, make func() ([]byte, error)) ([]byte, error) {
	path := s.Path("identity", name)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) > 0 {
		return data, nil
	}
	if data, err = make(); err != nil {
		return nil, err
	}
	return data, durable.WriteFile(path, data, 0o600)
}
