// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Identity opens secrets, see age(1).
//
// The key is made on the node, lies on its state disk and leaves it never; the recipient, its
// public half, is in the node's status and reports. A node without a disk has none: what
// would be sealed to it nobody could open after a reboot. Where else a key may lie, such as a
// TPM, is another Identity.
//
// While a key is rotated there are two, each in a file of its own: agents from before that
// read the first. Each step is one file that is written or renamed, so a node that is cut
// off between two opens what it could open before.
type Identity interface {
	Recipient() string // what they are to be sealed to
	Before() string    // what they were sealed to before, and are opened of as well; "" where no key is being rotated
	Open(s spec.Secret) ([]byte, error)
}

// keyFile names a key in a state directory: beside the other keys of the node, which are set
// aside with the fleet that knows it.
func keyFile(state, name string) string { return filepath.Join(state, name) }

// keyFiles are those of the two keys, the one that is reported first.
var keyFiles = []string{paths.SecretsNext, paths.SecretsKey}

// ReadKey returns the identity in a state directory, nil where there is none. Of two keys it is
// enough that one can be read: then that one counts.
func ReadKey(state string) (Identity, error) {
	var keys kept
	var errs []error
	for _, name := range keyFiles {
		switch key, err := readKey(keyFile(state, name)); {
		case err != nil:
			errs = append(errs, err)
		case key != nil:
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		return keys, nil
	}
	return nil, errors.Join(errs...)
}

const instead = "'caisson-agent apply' sets it aside and makes another; then 'caisson secrets accept SITE NODE " +
	"--recipient … --replace' with what 'caisson-agent recipient' prints, and publish"

// readKey returns the key in a file, nil where there is none.
func readKey(name string) (*age.X25519Identity, error) {
	text, err := ownfiles.ReadSecret(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file *ownfiles.SecretError
	if errors.As(err, &file) {
		return nil, cli.WithHint(fmt.Errorf("read the key of secrets: %w", err), instead)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of secrets: %w", err)
	}
	key, err := age.ParseX25519Identity(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("read the key of secrets: %s is damaged", name), instead) // age's own error may quote it
	}
	return key, nil
}

// EnsureKey is ReadKey, and makes an identity where there is none that can be read. A damaged key
// is set aside, and said: nothing is sealed to a node whose key cannot be told.
func EnsureKey(state string, say func(format string, args ...any)) (Identity, error) {
	for _, name := range keyFiles {
		if _, wrong := readKey(keyFile(state, name)); wrong != nil {
			aside, err := ownfiles.SetAside(keyFile(state, name), wrong)
			if err != nil {
				return nil, err
			}
			say("%v: it is set aside as %s", wrong, aside)
		}
	}
	has, err := ReadKey(state)
	if has != nil || err != nil {
		return has, err
	}
	if err := generateKey(keyFile(state, paths.SecretsKey)); err != nil {
		return nil, err
	}
	return ReadKey(state)
}

// RotateKey makes the next key, where there is none yet, and returns the identity that reports
// it and opens what was sealed to either.
func RotateKey(state string, say func(format string, args ...any)) (Identity, error) {
	has, err := EnsureKey(state, say)
	if err != nil || has.Before() != "" {
		return has, err
	}
	if key, err := readKey(keyFile(state, paths.SecretsKey)); key == nil || err != nil { // the next one is all that is left
		if err := SettleKey(state); err != nil {
			return nil, err
		}
	}
	if err := generateKey(keyFile(state, paths.SecretsNext)); err != nil {
		return nil, err
	}
	return ReadKey(state)
}

// SettleKey ends a rotation: the next key is the only one from now on.
func SettleKey(state string) error {
	if err := durable.Rename(keyFile(state, paths.SecretsNext), keyFile(state, paths.SecretsKey)); err != nil {
		return fmt.Errorf("put the next key of secrets in the place of the one before: %w", err)
	}
	return nil
}

// generateKey makes a key in a file.
func generateKey(name string) error {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("make a key of secrets: %w", err)
	}
	if err := ownfiles.Folder(filepath.Dir(name)); err != nil {
		return fmt.Errorf("keep the key of secrets: %w", err)
	}
	if err := durable.WriteFile(name, []byte(key.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the key of secrets: %w", err)
	}
	return nil
}

// kept are the keys that lie in files, the one that is reported first.
type kept []*age.X25519Identity

// Recipient implements Identity.
func (k kept) Recipient() string { return k[0].Recipient().String() }

// Before implements Identity.
func (k kept) Before() string {
	if len(k) < 2 {
		return ""
	}
	return k[1].Recipient().String()
}

// Open implements Identity. No error holds anything of the value.
func (k kept) Open(s spec.Secret) ([]byte, error) {
	at := slices.IndexFunc(k, func(key *age.X25519Identity) bool { return key.Recipient().String() == s.To })
	if at < 0 {
		return nil, fmt.Errorf("it is sealed to %.80s, which is not this node's key", s.To)
	}
	sealed, err := base64.StdEncoding.DecodeString(s.Sealed)
	if err != nil {
		return nil, errors.New("it is not base64")
	}
	out, err := age.Decrypt(bytes.NewReader(sealed), k[at])
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
