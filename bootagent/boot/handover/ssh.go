// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"github.com/caisson-os/caisson/internal/perhost"
)

// hostKey gives sshd its key, whose fingerprint stands on the console: the node's own for
// ever where there is a disk, else until the machine starts over.
func (n *Node) hostKey() error {
	if !n.exists("/usr/sbin/sshd") {
		return nil
	}
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	seed, err := n.keep("ssh_host_ed25519_seed", seed, func(data []byte) bool { return len(data) == ed25519.SeedSize })
	if err != nil {
		n.Say("the ssh host key is not kept: %v", err)
	}
	private, public := perhost.OpenSSH(seed, n.Overlay.Node)
	sum := sha256.Sum256(public)
	n.Say("ssh host key SHA256:%s", base64.RawStdEncoding.EncodeToString(sum[:]))
	line := "ssh-ed25519 " + base64.StdEncoding.EncodeToString(public) + " " + n.Overlay.Node + "\n"
	err = n.write("/etc/ssh/ssh_host_ed25519_key", private, 0o600)
	if err == nil {
		err = n.write("/etc/ssh/ssh_host_ed25519_key.pub", []byte(line), 0o644)
	}
	if err != nil {
		n.Say("%v", err) // a persisted /etc/ssh that cannot be written to
	}
	return nil
}
