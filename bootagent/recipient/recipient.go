// SPDX-License-Identifier: Apache-2.0

// Package recipient keeps the key that opens what is sealed to this node, see age(1).
//
// The key is made on the node, lies on its state disk and leaves it never; the recipient, its
// public half, is in the node's status and reports. A node without a disk has none: what
// would be sealed to it nobody could open after a reboot. Where else a key may lie, such as a
// TPM, is another [Identity]. Who opens a node, and who makes its root, import it.
package recipient

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Identity opens secrets.
type Identity interface {
	Recipient() string // what they are sealed to
	Open(s spec.Secret) ([]byte, error)
}

// file names the key in a state directory: beside the other keys of the node, which are set
// aside with the fleet that knows it.
func file(state string) string { return filepath.Join(state, paths.SecretsKey) }

// Read returns the identity in a state directory, nil where there is none.
func Read(state string) (Identity, error) {
	text, err := ownfiles.ReadSecret(file(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of secrets: %w", err)
	}
	key, err := age.ParseX25519Identity(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the key of secrets: %s is damaged", file(state)) // age's own error may quote it
	}
	return kept{key}, nil
}

// Ensure is Read, and makes an identity where there is none.
func Ensure(state string) (Identity, error) {
	has, err := Read(state)
	if has != nil || err != nil {
		return has, err
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fmt.Errorf("make a key of secrets: %w", err)
	}
	if err := ownfiles.Folder(filepath.Dir(file(state))); err != nil {
		return nil, fmt.Errorf("keep the key of secrets: %w", err)
	}
	if err := durable.WriteFile(file(state), []byte(key.String()+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("keep the key of secrets: %w", err)
	}
	return kept{key}, nil
}

// kept is an identity whose key lies in a file.
type kept struct{ key *age.X25519Identity }

// Recipient implements Identity.
func (k kept) Recipient() string { return k.key.Recipient().String() }

// Open implements Identity. No error holds anything of the value.
func (k kept) Open(s spec.Secret) ([]byte, error) {
	if s.To != k.Recipient() {
		return nil, errors.New("it is sealed to another key")
	}
	sealed, err := base64.StdEncoding.DecodeString(s.Sealed)
	if err != nil {
		return nil, errors.New("it is not base64")
	}
	out, err := age.Decrypt(bytes.NewReader(sealed), k.key)
	if err != nil {
		return nil, errors.New("this node's key does not open it")
	}
	value, err := io.ReadAll(io.LimitReader(out, rules.MaxSecret+1))
	switch {
	case err != nil:
		return nil, errors.New("it is damaged")
	case len(value) > rules.MaxSecret:
		return nil, fmt.Errorf("its value has more than %d KiB", rules.MaxSecret>>10)
	}
	return value, nil
}
