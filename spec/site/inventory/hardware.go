// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strconv"
)

// virtual are the vendors of virtual network cards among those that IEEE gave the
// first half of an address to: VMware, Hyper-V, VirtualBox, Xen, Parallels.
var virtual = []string{"00:05:69", "00:0c:29", "00:1c:14", "00:50:56", "00:15:5d", "08:00:27", "00:16:3e", "00:1c:42"}

// Hardware reports whether a MAC address, as a node's match has it, is that of a
// card: given by a vendor of hardware, and not chosen on the spot, as QEMU's and
// those of clouds are.
func Hardware(mac string) bool {
	first, err := strconv.ParseUint(mac[:min(2, len(mac))], 16, 8)
	return err == nil && first&2 == 0 && len(mac) > 8 && !slices.Contains(virtual, mac[:8])
}
