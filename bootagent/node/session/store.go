// SPDX-License-Identifier: Apache-2.0

package session

import (
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// Store is where the images of layers are kept: on the state disk, or in memory.
func (n *Session) Store() (*layers.Store, error) {
	if n.Boot.Disk == "" {
		return layers.OpenStore(n.Path(paths.RunStore))
	}
	return layers.OpenStore(n.Folder.Path("store"))
}

// InMemory reports whether this node has its images in memory, as one without a state
// disk. They outlive a soft-reboot, and no other.
func (n *Session) InMemory() bool { return n.Boot.Mode != spec.ModeAttached && n.Boot.Disk == "" }
