// SPDX-License-Identifier: Apache-2.0

package session

import "github.com/caisson-os/caisson/bootagent/recipient"

// ensureRecipient makes the key that opens this node's secrets, where it would last. Without
// one the node works all the same, but has no secrets.
func (n *Session) ensureRecipient() {
	if n.Lock == nil || n.Scopes.Disk == "" || n.Boot.ReadOnly || len(n.Boot.DiskTrouble) > 0 {
		return
	}
	if _, err := recipient.Ensure(n.Folder.Path()); err != nil {
		n.Say("%v", err)
	}
}

// Recipient is what secrets are sealed to for this node, "" where it has no key that lasts.
func (n *Session) Recipient() string {
	if n.Scopes.Disk == "" {
		return ""
	}
	key, err := recipient.Read(n.Folder.Path())
	if err != nil || key == nil {
		return "" // who opens a secret says why
	}
	return key.Recipient()
}
