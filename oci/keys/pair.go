// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/sign/keyfile"
)

// WritePair writes name.key and name.pub, both or neither, and overwrites
// nothing. The passphrase encrypts the private half; without one only the file's
// mode protects it. It reports whether a passphrase that is not empty was used.
func WritePair(key *ecdsa.PrivateKey, name string, p *Passphrase) (encrypted bool, err error) {
	private, public := name+".key", name+".pub"
	for _, file := range []string{private, public} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return false, cli.WithHint(fmt.Errorf("write key: %s is there already", file), "keys are never overwritten: give another name")
		}
	}
	pass, _, err := p.get() // none is the empty one
	if err != nil {
		return false, err
	}
	text, err := keyfile.Marshal(key, pass)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return false, err
	}
	if err := durable.WriteFile(private, text, 0o600); err != nil {
		return false, fmt.Errorf("write key: %w", err)
	}
	if err := durable.WriteFile(public, sign.VerifierOf(key).PEM(), 0o644); err != nil {
		return false, errors.Join(fmt.Errorf("write key: %w", err), os.Remove(private))
	}
	return len(pass) > 0, nil
}

// Publics reads public key files, one PEM key each. The same key twice is refused.
func Publics(names []string) ([]sign.Verifier, error) {
	var texts []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		if strings.Contains(string(text), "PRIVATE KEY-----") {
			return nil, cli.WithHint(fmt.Errorf("read public key %s: it is a private key", name), "name the public half, as in keys/operator.pub")
		}
		texts = append(texts, string(text))
	}
	keys, err := sign.ParsePublics(texts)
	if err != nil {
		return nil, fmt.Errorf("read public keys %s: %w", strings.Join(names, ", "), err)
	}
	return keys, nil
}

// Beside returns the private key files that lie beside public ones, NAME.key beside
// NAME.pub. Those that are not there are left out.
func Beside(publics []string) []string {
	var found []string
	for _, name := range publics {
		private := strings.TrimSuffix(name, ".pub") + ".key"
		if _, err := os.Stat(private); err == nil {
			found = append(found, private)
		}
	}
	return found
}
