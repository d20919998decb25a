// SPDX-License-Identifier: Apache-2.0

package perhost

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
)

// dropbear is a private key in the form of dropbearkey(1): name, and seed and public
// key, each after its length.
func dropbear(n Node) ([]byte, error) {
	key := ed25519.NewKeyFromSeed(derive(n.Seed, "dropbear", 0))
	return sshString(sshString(nil, ed25519Name), string(key)), nil
}

const ed25519Name = "ssh-ed25519"

// sshPublic is the key's blob as RFC 8709 has it.
func sshPublic(key ed25519.PrivateKey) []byte {
	return sshString(sshString(nil, ed25519Name), string(key.Public().(ed25519.PublicKey)))
}

// OpenSSH makes the key of a seed: the file in OpenSSH's own form (PROTOCOL.key), without a
// passphrase, and the blob of the public half. x/crypto/ssh writes it too, for a quarter of a
// megabyte of agent.
func OpenSSH(seed []byte, comment string) (private, public []byte) {
	key := ed25519.NewKeyFromSeed(seed)
	public = sshPublic(key)
	sum := sha256.Sum256(key) // a check number, twice; it guards a passphrase that there is not
	secret := append(append(sum[:4:4], sum[:4]...), public...)
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
	out = sshString(sshString(out, string(public)), string(secret))
	return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: out}), public
}

// sshString appends a length and the bytes, RFC 4251.
func sshString(to []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(s))), s...)
}
