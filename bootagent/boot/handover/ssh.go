// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
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
	key := ed25519.NewKeyFromSeed(seed)
	public := sshPublic(key)
	sum := sha256.Sum256(public)
	n.Say("ssh host key SHA256:%s", base64.RawStdEncoding.EncodeToString(sum[:]))
	line := "ssh-ed25519 " + base64.StdEncoding.EncodeToString(public) + " " + n.Overlay.Node + "\n"
	err = n.write("/etc/ssh/ssh_host_ed25519_key", sshPrivate(key, n.Overlay.Node), 0o600)
	if err == nil {
		err = n.write("/etc/ssh/ssh_host_ed25519_key.pub", []byte(line), 0o644)
	}
	if err != nil {
		n.Say("%v", err) // a persisted /etc/ssh that cannot be written to
	}
	return nil
}

const ed25519Name = "ssh-ed25519"

// sshPublic is the key's blob as RFC 8709 has it.
func sshPublic(key ed25519.PrivateKey) []byte {
	return sshString(sshString(nil, ed25519Name), string(key.Public().(ed25519.PublicKey)))
}

// sshPrivate is the key's file in OpenSSH's own form (PROTOCOL.key), without a
// passphrase. x/crypto/ssh writes it too, for a quarter of a megabyte of agent.
func sshPrivate(key ed25519.PrivateKey, comment string) []byte {
	sum := sha256.Sum256(key) // a check number, twice; it guards a passphrase that there is not
	secret := append(append(sum[:4:4], sum[:4]...), sshPublic(key)...)
	secret = sshString(sshString(secret, string(key)), comment)
	for pad := byte(1); len(secret)%8 != 0; pad++ {
		secret = append(secret, pad)
	}
	b := bytes.NewBufferString("openssh-key-v1\x00")
	out := b.Bytes()
	for _, field := range []string{"none", "none", ""} { // cipher, key derivation, its options
		out = sshString(out, field)
	}
	out = binary.BigEndian.AppendUint32(out, 1) // one key
	out = sshString(sshString(out, string(sshPublic(key))), string(secret))
	return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: out})
}

// sshString appends a length and the bytes, RFC 4251.
func sshString(to []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(s))), s...)
}
