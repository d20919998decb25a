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
	"maps"
	"path/filepath"
	"slices"

	"filippo.io/age"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// sealedSuffix is that of the file with a key as it is sealed to the machine's TPM, see ADR 47. A loader opens
// it, and leaves the key in memory. The node seals, and removes a key's own file once a loader
// has opened what is sealed of it: cut off anywhere, it has a key that it can open.
const sealedSuffix = ".sealed"

// sealedKey is the content of such a file.
type sealedKey struct {
	Recipient string `json:"recipient"`
	Authority []byte `json:"authority"` // PKIX of the key by whose approvals it opens
	Sealed    []byte `json:"sealed"`    // see [tpm.TPM.Seal]
}

// OpenedFile is the name of the file in [Keys].Memory. It goes on over a kexec.
const OpenedFile = "opened.json"

// inMemory is what a loader leaves in memory.
type inMemory struct {
	Authority []byte            `json:"authority,omitempty"` // what is sealed to it now, a loader opens
	Keys      map[string]string `json:"keys,omitempty"`      // identities by their recipients
	Foreign   []string          `json:"foreign,omitempty"`   // recipients of what this machine's TPM never opens
	Why       string            `json:"why,omitempty"`       // the others are not opened
}

// LockedError says that a key is sealed, and that this boot has not opened it. Another one may.
type LockedError struct{ Recipient, Why string }

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("the key of secrets %.80s is sealed to a TPM, and not opened in this boot: %s", e.Recipient, e.Why)
}

// readSealed returns what is sealed of the key in a file, nil where that is nothing.
func readSealed(file string) (*sealedKey, error) {
	data, err := ownfiles.ReadSecret(file + sealedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s sealedKey
	if err == nil && json.Unmarshal(data, &s) != nil {
		err = fmt.Errorf("%s is damaged", file+sealedSuffix)
	}
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("read the key of secrets: %w", err), instead)
	}
	return &s, nil
}

// opensNone is said where no loader has left anything.
const opensNone = "its loader opens none"

func (k Keys) readMemory() (m inMemory, err error) {
	var data []byte
	if err = fs.ErrNotExist; k.Memory != "" {
		data, err = ownfiles.ReadSecret(filepath.Join(k.Memory, OpenedFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return inMemory{Why: opensNone}, nil
	}
	if err == nil && json.Unmarshal(data, &m) != nil {
		err = fmt.Errorf("%s is damaged", OpenedFile)
	}
	if err != nil {
		return m, fmt.Errorf("read what the loader has opened: %w", err)
	}
	return m, nil
}

func (k Keys) writeMemory(m inMemory) error {
	data, _ := json.Marshal(m) // texts marshal
	return durable.WriteFile(filepath.Join(k.Memory, OpenedFile), data, 0o600)
}

// open returns the key that is sealed in the place of a file, nil where none is.
func (k Keys) open(file string) (*age.X25519Identity, error) {
	s, err := readSealed(file)
	if s == nil || err != nil {
		return nil, err
	}
	m, err := k.readMemory()
	if err != nil {
		return nil, err
	}
	key, err := age.ParseX25519Identity(m.Keys[s.Recipient])
	if err != nil || key.Recipient().String() != s.Recipient { // age's own error may quote it
		why := m.Why
		if slices.Contains(m.Foreign, s.Recipient) {
			why = tpm.ErrForeign.Error()
		}
		return nil, cli.WithHint(&LockedError{s.Recipient, why}, locked)
	}
	return key, nil
}

const locked = "start the machine by a loader that the boot key has signed; or 'caisson-agent recipient rotate' makes " +
	"another key, for 'caisson secrets accept SITE NODE --recipient … --replace'"

// seal brings the two forms of a key together.
func (k Keys) seal(file string, say func(format string, args ...any)) error {
	s, err := readSealed(file)
	m, wrong := k.readMemory()
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	plain, err := readKey(file)
	if err != nil {
		return err
	}
	key := plain
	if key == nil {
		if s == nil {
			return nil
		}
		if slices.Contains(m.Foreign, s.Recipient) {
			return k.setAside(file, tpm.ErrForeign, say)
		}
		if key, err = k.open(file); err != nil {
			return err
		}
	}
	isSealed := s != nil && s.Recipient == key.Recipient().String()
	if isSealed && plain != nil && m.Keys[s.Recipient] != "" {
		if err := durable.Remove(file); err != nil {
			return fmt.Errorf("remove the key of secrets, which is sealed: %w", err)
		}
		say("the key of secrets is sealed to this machine's TPM: its file is removed")
	}
	if m.Authority == nil || isSealed && bytes.Equal(s.Authority, m.Authority) {
		return nil
	}
	return k.writeSealed(file, key, m.Authority)
}

func (k Keys) setAside(file string, why error, say func(format string, args ...any)) error {
	aside, err := ownfiles.SetAside(file+sealedSuffix, why)
	if err == nil {
		say("the sealed key of secrets is set aside as %s: %v", aside, why)
	}
	return err
}

func (k Keys) writeSealed(file string, key *age.X25519Identity, authority []byte) error {
	signs, err := policyKey(authority)
	if err != nil {
		return err
	}
	s := sealedKey{Recipient: key.Recipient().String(), Authority: authority}
	if s.Sealed, err = k.TPM.Seal([]byte(key.String()), signs); err != nil {
		return fmt.Errorf("the key of secrets: %w", err)
	}
	data, _ := json.Marshal(s) // texts marshal
	return fault.In(durable.WriteFile(file+sealedSuffix, data, 0o600), "keep the sealed key of secrets")
}

// generateSealed keeps a key that was made in this boot sealed alone, and reports whether it could: there has to
// be an authority, and the TPM has to seal.
func (k Keys) generateSealed(file string, key *age.X25519Identity) bool {
	m, err := k.readMemory()
	if err != nil || m.Authority == nil {
		return false
	}
	before := m
	if m.Keys = maps.Clone(m.Keys); m.Keys == nil {
		m.Keys = map[string]string{}
	}
	m.Keys[key.Recipient().String()] = key.String()
	if k.writeMemory(m) != nil {
		return false
	}
	if k.writeSealed(file, key, m.Authority) == nil {
		return true
	}
	_ = k.writeMemory(before) // else its file is removed once it is sealed, and not when that was opened
	return false
}

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
