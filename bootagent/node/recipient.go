// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/caisson-os/caisson/bootagent/node/session"

// ErrNoKey is for a node without a key of secrets.
var ErrNoKey = session.ErrNoKey

// Recipients are what secrets are to be sealed to for this node and, while its key is rotated,
// what they were sealed to before.
func (n *Node) Recipients() (now, before string, err error) { return n.session.Recipients() }

// RotateRecipient makes the next key of this node's secrets, where no rotation is under way.
// The one before is removed once nothing needs it that the node runs or goes back to.
func (n *Node) RotateRecipient() error { return n.session.RotateRecipient() }
