// SPDX-License-Identifier: Apache-2.0

package perhost

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Node is the node for which files are made.
type Node struct {
	Fleet, Name string
	Domain      string // of its lease, or ""
	Seed        []byte // SeedSize random bytes: what is secret follows from them
}

// SeedSize is the length of a seed in bytes.
const SeedSize = 32

// derive returns the nth 32 bytes that follow from a key for one purpose.
func derive(key []byte, purpose string, n int) []byte {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "caisson %s %d", purpose, n) // a hash takes everything
	return mac.Sum(nil)
}

// name returns 32 bytes that follow from fleet and node alone.
func (n Node) name(purpose string) []byte {
	return derive(fmt.Appendf(nil, "%d %s %s", len(n.Fleet), n.Fleet, n.Name), purpose, 0)
}

// initiator has the form of iscsi-iname(8) in Debian.
func initiator(n Node) ([]byte, error) {
	return fmt.Appendf(nil, "InitiatorName=iqn.1993-08.org.debian:01:%x\n", n.name("iscsi")[:6]), nil
}

// hostNQN is that of a UUID, NVMe Base Specification 4.7.
func hostNQN(n Node) ([]byte, error) {
	return fmt.Appendf(nil, "nqn.2014-08.org.nvmexpress:uuid:%s\n", n.uuid("nvme")), nil
}

func hostID(n Node) ([]byte, error) { return []byte(n.uuid("nvme") + "\n"), nil }

// uuid is of version 8, RFC 9562: one that follows from something.
func (n Node) uuid(purpose string) string {
	u := n.name(purpose)[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// mailname is the full name, see mailname(5).
func mailname(n Node) ([]byte, error) {
	return []byte(strings.TrimSuffix(n.Name+"."+n.Domain, ".") + "\n"), nil
}

// raw makes a key that is any bytes.
func raw(purpose string, size int) func(Node) ([]byte, error) {
	return func(n Node) ([]byte, error) {
		var key []byte
		for i := 0; len(key) < size; i++ {
			key = append(key, derive(n.Seed, purpose, i)...)
		}
		return key[:size], nil
	}
}

// rndc returns the file that rndc-confgen(8) -a writes.
func rndc(n Node) ([]byte, error) {
	secret := base64.StdEncoding.EncodeToString(derive(n.Seed, "rndc", 0))
	return fmt.Appendf(nil, "key \"rndc-key\" {\n\talgorithm hmac-sha256;\n\tsecret %q;\n};\n", secret), nil
}

// cookie is 32 upper-case letters; Erlang makes 20.
func cookie(n Node) ([]byte, error) {
	text := derive(n.Seed, "erlang", 0)
	for i, b := range text {
		text[i] = 'A' + b%26
	}
	return text, nil
}

// snakeoilMaker is Debian's own; where it is, something may name its files.
const snakeoilMaker = "/usr/sbin/make-ssl-cert"

// snakeoil is a key of P-256: older libpq cannot bind a channel by Ed25519.
func snakeoil(n Node) (key *ecdsa.PrivateKey, err error) {
	for i := range 8 { // one in 2^32 is not a key
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), derive(n.Seed, "snakeoil", i)); err == nil {
			break
		}
	}
	return key, err
}

func snakeoilKey(n Node) ([]byte, error) {
	key, err := snakeoil(n)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// snakeoilCertificate is signed by its own key, and the same at each boot. It begins before
// any node's clock and does not end, RFC 5280 4.1.2.5.
func snakeoilCertificate(n Node) ([]byte, error) {
	key, err := snakeoil(n)
	if err != nil {
		return nil, err
	}
	is := x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(derive(n.Seed, "serial", 0)[:15]), Subject: pkix.Name{CommonName: n.Name}, DNSNames: []string{n.Name},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(nil, &is, &is, key.Public(), key) // no random numbers: RFC 6979
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

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
