// SPDX-License-Identifier: Apache-2.0

package people

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
)

// sealer keeps what others hold for this process: they can neither read nor change it. Its key ends
// with the process.
type sealer struct{ aead cipher.AEAD }

func newSealer() (*sealer, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead}, err
}

func (s *sealer) seal(text []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

// mostSealed is more than any flow has, in bytes.
const mostSealed = 4 << 10

func (s *sealer) open(kept string) ([]byte, bool) {
	if len(kept) > mostSealed {
		return nil, false
	}
	data, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil {
		return nil, false
	}
	text, err := s.aead.Open(nil, nil, data, nil)
	return text, err == nil
}
