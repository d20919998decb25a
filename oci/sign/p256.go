// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// p256 is ECDSA over P-256 with SHA-256, the signature in ASN.1. Another algorithm
// is a file like this one, a case in [NewVerifier] and, for keys in files, one in
// oci/sign/keyfile.
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
	if _, own := signer.(*ecdsa.PrivateKey); !own && !ecdsa.VerifyASN1(p.key, sum[:], signature) {
		return nil, errors.New("sign: the signer's answer does not verify with its public key")
	}
	return signature, nil
}
