// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Loader is what systemd's stub has passed on of a loader, and what the loader before a kexec has left.
type Loader struct {
	Approvals, Key string // files, which need not exist
	Carried        string // directory, which need not exist
	Trial          bool   // it has not proved itself: nothing is sealed for it
}

// errNoPolicy is of loaders that are not signed, and of those that firmware did not start.
var errNoPolicy = errors.New("its loader brings no policy that a boot key has signed")

// Unlock is the loader's part: it opens what is sealed, and leaves it in memory with the key to which
// the node is to seal. What is not opened is said to who reads the key.
func (k Keys) Unlock(l Loader) error {
	m, err := Keys{Memory: l.Carried}.readMemory()
	if err == nil && m.Why != opensNone { // also why it opened none, which this one cannot see
		return k.writeMemory(m)
	}
	m = inMemory{Keys: map[string]string{}}
	authority, approvals, err := l.policy()
	if err != nil {
		m.Why = err.Error()
	}
	for _, name := range keyFiles {
		s, wrong := readSealed(keyFile(k.State, name))
		if s == nil || wrong != nil {
			continue // who makes keys says so
		}
		key, wrong := k.unseal(s, approvals)
		switch {
		case wrong == nil:
			m.Keys[s.Recipient] = string(key)
		case errors.Is(wrong, tpm.ErrForeign):
			m.Foreign = append(m.Foreign, s.Recipient)
		case m.Why == "":
			m.Why = wrong.Error()
		}
	}
	if authority != nil && !l.Trial {
		if err := k.proves(authority, approvals); err == nil {
			m.Authority = authority
		} else if m.Why == "" {
			m.Why = err.Error()
		}
	}
	return k.writeMemory(m)
}

// unseal has the TPM open a key by the approval of its authority.
func (k Keys) unseal(s *sealedKey, approvals []spec.Approval) ([]byte, error) {
	signs, err := policyKey(s.Authority)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(s.Authority)
	err = errNoPolicy
	for _, a := range approvals {
		policy, wrong := hex.DecodeString(a.Policy)
		if a.Key != hex.EncodeToString(id[:]) || wrong != nil {
			continue
		}
		text, wrong := k.TPM.Unseal(s.Sealed, tpm.Approval{Key: signs, Registers: a.Registers, Policy: policy, Signature: a.Signature})
		if wrong == nil {
			return text, nil
		}
		err = wrong
	}
	return nil, err
}

// proves seals something to a key, and wants it opened again, before more depends on it.
func (k Keys) proves(authority []byte, approvals []spec.Approval) error {
	signs, err := policyKey(authority)
	if err != nil {
		return err
	}
	probe := []byte("probe")
	sealed, err := k.TPM.Seal(probe, signs)
	if err != nil {
		return err
	}
	got, err := k.unseal(&sealedKey{Authority: authority, Sealed: sealed}, approvals)
	if err == nil && !bytes.Equal(got, probe) {
		err = errors.New("the TPM opens something else than was sealed")
	}
	return err
}

// policy returns the key that the loader names, a PKIX, and what is signed for it.
func (l Loader) policy() (authority []byte, approvals []spec.Approval, err error) {
	text, err := ownfiles.ReadPublic(l.Approvals, maxPolicy)
	var key []byte
	if err == nil {
		key, err = ownfiles.ReadPublic(l.Key, maxPolicy)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, errNoPolicy
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the policy of the loader: %w", err)
	}
	var a spec.Approvals
	block, _ := pem.Decode(key)
	if json.Unmarshal(text, &a) != nil || block == nil {
		return nil, nil, errors.New("the policy of the loader is damaged")
	}
	return block.Bytes, a.SHA256, nil
}

const maxPolicy = 64 << 10 // bytes

func policyKey(authority []byte) (*rsa.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(authority)
	if err != nil {
		return nil, fmt.Errorf("the key that signs policies: %w", err)
	}
	signs, is := key.(*rsa.PublicKey)
	if !is {
		return nil, errors.New("the key that signs policies is not an RSA key")
	}
	return signs, nil
}
