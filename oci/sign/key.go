// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/caisson-os/caisson/spec/refusal"
)

// Verifier is a public key. Which algorithm it is of is known in this package
// only, see p256.go; everyone else passes keys on and compares their IDs.
type Verifier interface {
	ID() string                            // as cosign's hint names a key: base64 of the SHA-256 of its SPKI
	PEM() []byte                           // SPKI
	Verify(message, signature []byte) bool // hashes the message by itself

	sign(signer crypto.Signer, message []byte) ([]byte, error)
}

// NewVerifier returns the verifier of a key, which must be ECDSA P-256: the tools
// disagree about all others.
func NewVerifier(pub crypto.PublicKey) (Verifier, error) {
	switch k := pub.(type) {
	case Verifier:
		return k, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return newP256(k)
		}
		return nil, refusal.New(refusal.BadKey, "the key is ECDSA %s, not ECDSA P-256", k.Curve.Params().Name)
	}
	return nil, refusal.New(refusal.BadKey, "the key is %T, not ECDSA P-256", pub)
}

// Generate makes a new key.
func Generate() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// VerifierOf returns the verifier of a key that [Generate] made.
func VerifierOf(key *ecdsa.PrivateKey) Verifier {
	v, err := NewVerifier(&key.PublicKey)
	if err != nil {
		panic(err) // Generate makes no other keys
	}
	return v
}

// ParsePublic reads one SPKI PEM public key that [NewVerifier] takes.
func ParsePublic(text []byte) (Verifier, error) {
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
	return NewVerifier(key)
}

// publics are keys and the texts that they were read from.
type publics struct {
	texts []string
	keys  []Verifier
}

// lastPublics has the list that was read last: who decides for many nodes asks for the same again.
var lastPublics atomic.Pointer[publics]

// PEMs returns keys as [ParsePublics] reads them.
func PEMs(keys []Verifier) (texts []string) {
	for _, k := range keys {
		texts = append(texts, string(k.PEM()))
	}
	return texts
}

// ParsePublics reads a list of keys. The same key twice is refused: it would
// count twice towards a threshold in the eye of the list's author.
func ParsePublics(texts []string) ([]Verifier, error) {
	if last := lastPublics.Load(); last != nil && slices.Equal(last.texts, texts) {
		return slices.Clone(last.keys), nil
	}
	var keys []Verifier
	seen := map[string]bool{}
	for i, text := range texts {
		pub, err := ParsePublic([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if seen[pub.ID()] {
			return nil, refusal.New(refusal.BadKey, "key %d is listed twice", i+1)
		}
		seen[pub.ID()] = true
		keys = append(keys, pub)
	}
	lastPublics.Store(&publics{slices.Clone(texts), slices.Clone(keys)})
	return keys, nil
}

// Once is a signer of one message: asked again it gives the same signature. Who signs for many nodes
// holds these, and not the bundles, which are as good as the signatures and ten times as large.
type Once struct {
	By       crypto.Signer
	of, made []byte
}

// Public returns the key that signs.
func (o *Once) Public() crypto.PublicKey { return o.By.Public() }

// Sign refuses another message than the first.
func (o *Once) Sign(random io.Reader, sum []byte, opts crypto.SignerOpts) (made []byte, err error) {
	if o.made != nil && !slices.Equal(sum, o.of) {
		return nil, errors.New("another message was signed before")
	}
	if o.made == nil {
		o.of = slices.Clone(sum)
		o.made, err = o.By.Sign(random, sum, opts)
	}
	return o.made, err
}

// Find returns the verifier of pub among keys, and whether it is there.
func Find(keys []Verifier, pub crypto.PublicKey) (Verifier, bool) {
	v, err := NewVerifier(pub)
	if err != nil {
		return nil, false
	}
	return v, slices.ContainsFunc(keys, func(k Verifier) bool { return k.ID() == v.ID() })
}

// spki returns the PEM of a public key and its ID.
func spki(pub crypto.PublicKey) (text []byte, id string, err error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, "", refusal.New(refusal.BadKey, "public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), base64.StdEncoding.EncodeToString(sum[:]), nil
}

// IsID reports whether a text can be the id of a key: a SHA-256 in base64.
func IsID(text string) bool {
	sum, err := base64.StdEncoding.Strict().DecodeString(text)
	return err == nil && len(sum) == sha256.Size && len(text) == base64.StdEncoding.EncodedLen(sha256.Size)
}

// p256 is ECDSA over P-256 with SHA-256, the signature in ASN.1. Another algorithm
// is a file like this one, a case in [NewVerifier] and, for keys in files, one in
// oci/keys.
type p256 struct {
	key *ecdsa.PublicKey
	id  string
	pem []byte
}

func newP256(key *ecdsa.PublicKey) (Verifier, error) {
	text, id, err := spki(key)
	if err != nil {
		return nil, err
	}
	return &p256{key, id, text}, nil
}

func (p *p256) ID() string  { return p.id }
func (p *p256) PEM() []byte { return p.pem }

func (p *p256) Verify(message, signature []byte) bool {
	sum := sha256.Sum256(message)
	return ecdsa.VerifyASN1(p.key, sum[:], signature)
}

// sign checks what it is answered, except by a key in this process: a signer may be a
// program or a device, with another key than it says.
func (p *p256) sign(signer crypto.Signer, message []byte) ([]byte, error) {
	sum := sha256.Sum256(message)
	signature, err := signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if once, is := signer.(*Once); is {
		signer = once.By
	}
	if _, own := signer.(*ecdsa.PrivateKey); !own && !ecdsa.VerifyASN1(p.key, sum[:], signature) {
		return nil, errors.New("sign: the signer's answer does not verify with its public key")
	}
	return signature, nil
}

// IDs returns the ids of keys that [ParsePublics] reads.
func IDs(texts []string) ([]string, error) {
	keys, err := ParsePublics(texts)
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID()
	}
	return ids, err
}
