// SPDX-License-Identifier: Apache-2.0

package handover

import "github.com/caisson-os/caisson/internal/paths"

// withImages lets the agent's service have more memory than it needs for itself.
const withImages = "[Service]\nMemoryHigh=infinity\nMemoryMax=90%\n"

// memory lets the agent of a node without a disk bring images into memory: what a service
// writes there counts as its own, and past its unit's limits the kernel would kill it. How
// much it brings has a rule of its own, see swap.Memory.
func (n *Node) memory() error {
	if n.Disk {
		return nil
	}
	return n.write("/etc/systemd/system/"+paths.AgentService+".d/"+paths.Prefix+"memory.conf", []byte(withImages), 0o644)
}
