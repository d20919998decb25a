// SPDX-License-Identifier: Apache-2.0

// Package keys opens and writes the keys that an operator names: private key
// files with their passphrases, programs that hold a key, and public key files.
//
// It is not a file format, which is oci/sign/keyfile, and decides about no
// signature, which is oci/sign. It reads the environment and may ask on the
// terminal, so only the operator's side imports it, never the agent.
package keys

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/sign/keyfile"
)

// Open reads a private key file, which its owner alone may be able to read. For
// an encrypted one it tries [Passphrase], then the empty one, and asks on a
// terminal only when the environment has none.
func Open(name string) (*ecdsa.PrivateKey, error) {
	text, err := ownfiles.ReadSecret(name)
	if err != nil && public(name) {
		// Its mode is right for what it is, so that is not what to mend.
		return nil, cli.WithHint(fmt.Errorf("read key %s: it is a public key", name), "name the private half, as in keys/operator.key")
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := decrypt(name, text)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", name, err)
	}
	return key, nil
}

// public reports whether a file that was refused as a secret holds a public key.
func public(name string) bool {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 { // no key is as large
		return false
	}
	_, err = Publics([]string{name})
	return err == nil
}

// decrypt tries the passphrase of the environment and the empty one, which keys
// of init have, before it asks.
func decrypt(name string, text []byte) (*ecdsa.PrivateKey, error) {
	pass, given := Passphrase()
	key, err := keyfile.Parse(text, pass)
	if errors.Is(err, keyfile.ErrPassphrase) && given {
		key, err = keyfile.Parse(text, nil)
	}
	if !errors.Is(err, keyfile.ErrPassphrase) {
		return key, err
	}
	if given || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, cli.WithHint(err, "set CAISSON_PASSPHRASE")
	}
	if pass, err = ask("passphrase of " + name + ": "); err != nil {
		return nil, err
	}
	return keyfile.Parse(text, pass)
}

// Passphrase returns the passphrase that the environment gives, in
// CAISSON_PASSPHRASE or COSIGN_PASSWORD, and reports whether it gives one: it may
// be empty.
func Passphrase() ([]byte, bool) {
	for _, name := range []string{"CAISSON_PASSPHRASE", "COSIGN_PASSWORD"} {
		if v, ok := os.LookupEnv(name); ok {
			return []byte(v), true
		}
	}
	return nil, false
}

func ask(prompt string) ([]byte, error) {
	fmt.Fprint(os.Stderr, prompt)
	pass, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	return pass, err
}
