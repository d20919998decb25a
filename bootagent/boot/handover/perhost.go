// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/rand"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/internal/safepath"
)

// perHost makes the files of perhost's table whose programs the layer has. Identities follow
// from names; secrets from one seed, which is the node's for ever where there is a disk, else
// until the machine starts over. A secret that is there, on a persisted path, stays; what the
// overlay's files say comes later and wins.
func (n *Node) perHost() error {
	node := perhost.Node{Fleet: n.Overlay.Fleet, Name: n.Overlay.Node}
	if n.Lease != nil {
		node.Domain = n.Lease.Domain
	}
	for _, row := range perhost.Table {
		for _, f := range row.Files {
			if !n.exists(f.For) || !f.Always && n.exists(f.Path) {
				continue
			}
			if node.Seed == nil {
				node.Seed = n.secretSeed()
			}
			if err := n.makeFile(f, node); err != nil {
				n.Say("%s of this node: %v", f.Path, err) // one service lacks it
			}
		}
	}
	return nil
}

func (n *Node) secretSeed() []byte {
	fresh := make([]byte, perhost.SeedSize)
	rand.Read(fresh)
	seed, err := n.keep("secrets-seed", fresh, func(data []byte) bool { return len(data) == perhost.SeedSize })
	if err != nil {
		n.Say("keys that this node makes for its services are not kept over a reboot: %v", err)
	}
	return seed
}

func (n *Node) makeFile(f perhost.File, node perhost.Node) error {
	content, err := f.Make(node)
	if err != nil {
		return err
	}
	t := safepath.Thing{Mode: unix.S_IFREG | uint32(f.Mode), Content: content, UID: os.Geteuid(), GID: os.Getegid()}
	if f.Owner != "" {
		if t.UID, err = files.ID(n.path("/etc"), "passwd", f.Owner, nil); err != nil {
			return err
		}
	}
	if f.Group != "" {
		if t.GID, err = files.ID(n.path("/etc"), "group", f.Group, nil); err != nil {
			return err
		}
	}
	dir, err := directory(n.Root, filepath.Dir(f.Path))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	if err := dir.Put(filepath.Base(f.Path), t); err != nil {
		return err
	}
	n.wrote = append(n.wrote, f.Path)
	return nil
}
