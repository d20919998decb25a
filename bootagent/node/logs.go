// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/caisson-os/caisson/bootagent/items/exec"
)

// LastRun returns the last run of a script of this node and what it printed.
func (n *Node) LastRun(name string) (*exec.Last, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	for _, it := range n.items(found) {
		if scripts, ok := it.(*exec.Item); ok {
			return scripts.Last(name)
		}
	}
	return nil, nil // the table has scripts
}
