// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/trust/refusal"
)

// Generate makes a new key.
func Generate() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// MarshalPublic encodes a public key as SPKI PEM.
func MarshalPublic(pub *ecdsa.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		panic(err) // only keys that this package made or parsed come here
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// ParsePublic reads one SPKI PEM public key and takes no kind but ECDSA P-256:
// the tools disagree about all others.
func ParsePublic(text []byte) (*ecdsa.PublicKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, refusal.New(refusal.BadKey, "no PEM block PUBLIC KEY")
	}
	if extra, _ := pem.Decode(rest); extra != nil {
		return nil, refusal.New(refusal.BadKey, "more than one PEM block in a public key")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, refusal.New(refusal.BadKey, "public key: %w", err)
	}
	pub, ok := key.(*ecdsa.PublicKey)
	if !ok || pub.Curve != elliptic.P256() {
		return nil, refusal.New(refusal.BadKey, "the key is %s, not ECDSA P-256", kindOf(key))
	}
	return pub, nil
}

// ParsePublics reads a list of keys. The same key twice is refused: it would
// count twice towards a threshold in the eye of whoever wrote the list.
func ParsePublics(texts []string) ([]*ecdsa.PublicKey, error) {
	var keys []*ecdsa.PublicKey
	seen := map[string]bool{}
	for i, text := range texts {
		pub, err := ParsePublic([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if id := KeyID(pub); seen[id] {
			return nil, refusal.New(refusal.BadKey, "key %d is listed twice", i+1)
		} else {
			seen[id] = true
		}
		keys = append(keys, pub)
	}
	return keys, nil
}

// KeyID names a key as cosign's hint does: base64 of the SHA-256 of its SPKI.
func KeyID(pub *ecdsa.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func kindOf(key any) string {
	if k, ok := key.(*ecdsa.PublicKey); ok {
		return "ECDSA " + k.Curve.Params().Name
	}
	return fmt.Sprintf("%T", key)
}

var errNotP256 = errors.New("the private key is not ECDSA P-256")
