// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"sync"
	"testing"
)

// Everyone who can sign. Each has one role; "stranger" has none.
var everyone = []string{"operator", "second", "release", "attestation", "epoch", "stranger"}

var keyring = sync.OnceValue(func() map[string]crypto.Signer {
	ring := map[string]crypto.Signer{}
	for _, name := range everyone {
		ring[name] = newECDSA(elliptic.P256())
	}
	ring["p384"] = newECDSA(elliptic.P384())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	ring["ed25519ph"] = ed
	return ring
})

func newECDSA(c elliptic.Curve) crypto.Signer {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

// Public is a key's SPKI PEM.
func Public(t testing.TB, name string) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki(name)}))
}

// Publics are the keys' SPKI PEMs.
func Publics(t testing.TB, names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, Public(t, n))
	}
	return out
}

func spki(name string) []byte {
	key, ok := keyring()[name]
	if !ok {
		panic("attack: no key " + name)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err)
	}
	return der
}

func hint(name string) string {
	sum := sha256.Sum256(spki(name))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// signature is what the key's owner would make of the bytes; the odd algorithms
// are as cosign uses them.
func signature(name string, message []byte) []byte {
	key := keyring()[name]
	var sig []byte
	var err error
	switch name {
	case "p384":
		sum := sha512.Sum384(message)
		sig, err = key.Sign(rand.Reader, sum[:], crypto.SHA384)
	case "ed25519ph":
		sum := sha512.Sum512(message)
		sig, err = key.Sign(nil, sum[:], crypto.SHA512)
	default:
		sum := sha256.Sum256(message)
		sig, err = key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	if err != nil {
		panic(err)
	}
	return sig
}
