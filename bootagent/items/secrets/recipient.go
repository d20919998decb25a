// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Identity opens secrets, see age(1).
//
// The key is made on the node, lies on its state disk and leaves it never; the recipient, its
// public half, is in the node's status and reports. A node without a disk has none: what
// would be sealed to it nobody could open after a reboot. Where a loader opens it, it lies there sealed to
// the machine's TPM.
//
// While a key is rotated there are two, each in a file of its own: agents from before that
// read the first. Each step is one file that is written or renamed, so a node that is cut
// off between two opens what it could open before.
type Identity interface {
	Recipient() string // what they are to be sealed to
	Sealed() bool      // that key is sealed to the machine's TPM, and in no file
	Before() string    // what they were sealed to before, and are opened of as well; "" where no key is being rotated
	Open(s spec.Secret) ([]byte, error)
}

// Keys are the keys of secrets of a node.
type Keys struct {
	State  string  // directory of the node's state: beside its other keys, which are set aside with the fleet that knows it
	Memory string  // directory in memory with what a loader has opened of sealed ones; it need not exist
	TPM    tpm.TPM // which seals
}

// keyFile names a key in a state directory.
func keyFile(state, name string) string { return filepath.Join(state, name) }

// keyFiles are those of the two keys, the one that is reported first.
var keyFiles = []string{paths.SecretsNext, paths.SecretsKey}

// Read returns the identity, nil where there is none. Of two keys it is enough that one can
// be read: then that one counts.
func (k Keys) Read() (Identity, error) {
	var keys kept
	var errs []error
	for _, name := range keyFiles {
		switch key, sealed, err := k.read(name); {
		case err != nil:
			errs = append(errs, err)
		case key != nil && (len(keys.keys) == 0 || keys.Recipient() != key.Recipient().String()):
			keys.sealed = len(keys.keys) == 0 && sealed || keys.sealed
			keys.keys = append(keys.keys, key)
		}
	}
	if len(keys.keys) > 0 {
		return keys, nil
	}
	return nil, errors.Join(errs...)
}

// read returns a key, nil where there is none, and whether only the TPM opens it.
func (k Keys) read(name string) (key *age.X25519Identity, sealed bool, err error) {
	if key, err = readKey(keyFile(k.State, name)); key != nil || err != nil {
		return key, false, err
	}
	key, err = k.open(keyFile(k.State, name))
	return key, true, err
}

const instead = "'caisson-agent apply' sets it aside and makes another; then 'caisson secrets accept SITE NODE " +
	"--recipient … --replace' with what 'caisson-agent recipient' prints, and publish"

// readKey returns the key in a file, nil where there is none.
func readKey(name string) (*age.X25519Identity, error) {
	text, err := ownfiles.ReadSecret(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, ok := errors.AsType[*ownfiles.SecretError](err); ok {
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

// Ensure is Read, and makes an identity where there is none that can be read. A damaged key
// is set aside, and said: nothing is sealed to a node whose key cannot be told. One that is sealed
// and not opened stays, since another loader may open it: then there is no other one.
func (k Keys) Ensure(say func(format string, args ...any)) (Identity, error) {
	for _, name := range keyFiles {
		file := keyFile(k.State, name)
		if _, wrong := readKey(file); wrong != nil {
			aside, err := ownfiles.SetAside(file, wrong)
			if err != nil {
				return nil, err
			}
			say("%v: it is set aside as %s", wrong, aside)
		}
		if _, wrong := readSealed(file); wrong != nil {
			if err := k.setAside(file, wrong, say); err != nil {
				return nil, err
			}
		}
		err := k.seal(file, say)
		if _, locked := errors.AsType[*LockedError](err); err != nil && !locked {
			say("%v", err) // it stays as it is
		}
	}
	has, err := k.Read()
	if has != nil || err != nil {
		return has, err
	}
	if err := k.generate(keyFile(k.State, paths.SecretsKey)); err != nil {
		return nil, err
	}
	return k.Read()
}

// Rotate makes the next key, where there is none yet, and returns the identity that reports
// it and opens what was sealed to either. Of a key that this boot has not opened it does not wait for
// another boot any more.
func (k Keys) Rotate(say func(format string, args ...any)) (Identity, error) {
	has, err := k.Ensure(say)
	if locked, ok := errors.AsType[*LockedError](err); ok {
		for _, name := range keyFiles {
			if _, _, wrong := k.read(name); errors.As(wrong, &locked) {
				if err := k.setAside(keyFile(k.State, name), wrong, say); err != nil {
					return nil, err
				}
			}
		}
		return k.Ensure(say)
	}
	if err != nil || has.Before() != "" {
		return has, err
	}
	if key, _, err := k.read(paths.SecretsKey); key == nil || err != nil { // the next one is all that is left
		if err := k.Settle(); err != nil {
			return nil, err
		}
	}
	if err := k.generate(keyFile(k.State, paths.SecretsNext)); err != nil {
		return nil, err
	}
	return k.Read()
}

// Settle ends a rotation: the next key is the only one from now on. What is sealed of the one
// before goes first: a file of a key counts more than what is sealed beside it.
func (k Keys) Settle() error {
	next, key := keyFile(k.State, paths.SecretsNext), keyFile(k.State, paths.SecretsKey)
	for _, suffix := range []string{"", sealedSuffix} {
		if _, err := os.Lstat(next + suffix); errors.Is(err, fs.ErrNotExist) {
			if err := durable.Remove(key + suffix); err != nil {
				return fmt.Errorf("remove the key of secrets before: %w", err)
			}
		} else if err := durable.Rename(next+suffix, key+suffix); err != nil {
			return fmt.Errorf("put the next key of secrets in the place of the one before: %w", err)
		}
	}
	return nil
}

// generate makes a key: sealed where a loader opens it again, or else in a file.
func (k Keys) generate(file string) error {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("make a key of secrets: %w", err)
	}
	if err := ownfiles.Folder(filepath.Dir(file)); err != nil {
		return fmt.Errorf("keep the key of secrets: %w", err)
	}
	if k.generateSealed(file, key) {
		return nil
	}
	return fault.In(durable.WriteFile(file, []byte(key.String()+"\n"), 0o600), "keep the key of secrets")
}

// kept are the keys that a node has, the one that is reported first.
type kept struct {
	keys   []*age.X25519Identity
	sealed bool // the first one is
}

// Sealed implements Identity.
func (k kept) Sealed() bool { return k.sealed }

// Recipient implements Identity.
func (k kept) Recipient() string { return k.keys[0].Recipient().String() }

// Before implements Identity.
func (k kept) Before() string {
	if len(k.keys) < 2 {
		return ""
	}
	return k.keys[1].Recipient().String()
}

// Open implements Identity. No error holds anything of the value; each names the recipient, by which
// who reads it tells another node's from what is damaged.
func (k kept) Open(s spec.Secret) ([]byte, error) {
	at := slices.IndexFunc(k.keys, func(key *age.X25519Identity) bool { return key.Recipient().String() == s.To })
	if at < 0 {
		return nil, fmt.Errorf("it is sealed to %.80s, which is not this node's key", s.To)
	}
	sealed, err := base64.StdEncoding.DecodeString(s.Sealed)
	if err != nil {
		return nil, fmt.Errorf("it is sealed to %s, and not base64", s.To)
	}
	out, err := age.Decrypt(bytes.NewReader(sealed), k.keys[at])
	if err != nil {
		return nil, fmt.Errorf("it is sealed to %s, whose key does not open it", s.To)
	}
	value, err := io.ReadAll(io.LimitReader(out, rules.MaxSecret+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is sealed to %s, and damaged", s.To)
	case len(value) > rules.MaxSecret:
		return nil, fmt.Errorf("it is sealed to %s, and has more than %d KiB", s.To, rules.MaxSecret>>10)
	}
	return value, nil
}
