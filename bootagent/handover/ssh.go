// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"

	"golang.org/x/crypto/ssh"
)

// hostKey gives sshd its key: the node's own for ever where there is a disk,
// else a new one each boot, whose fingerprint stands on the console.
func (n *Node) hostKey() error {
	if !n.exists("/usr/sbin/sshd") {
		return nil
	}
	text, err := newHostKey(n.Overlay.Node)
	if n.Disk {
		text, err = keep(n.State, "ssh_host_ed25519_key", func() ([]byte, error) { return newHostKey(n.Overlay.Node) })
	}
	if err != nil {
		return err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return err
	}
	n.Say("ssh host key %s", ssh.FingerprintSHA256(signer.PublicKey()))
	if err := n.write("/etc/ssh/ssh_host_ed25519_key", text, 0o600); err != nil {
		return err
	}
	return n.write("/etc/ssh/ssh_host_ed25519_key.pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o644)
}

func newHostKey(comment string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}
